"""Toy trunks, tiny models, exact oracles and hostile drafters, for your tests as well as ours."""
