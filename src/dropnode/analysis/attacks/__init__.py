"""Attacks: graphs with edges changed to mislead a classifier."""
