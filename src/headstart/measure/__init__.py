"""Does it pay, is it exact, what does a checkpoint offer: figures about models, drafters and servers."""
