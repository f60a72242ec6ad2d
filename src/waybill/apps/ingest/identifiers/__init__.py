"""ARKs: how they are written (noid), counted (minter) and registered (ezid)."""
