"""What runs programs: the native CPU core, behind one protocol."""
