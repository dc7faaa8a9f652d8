"""Reads include/hawser.h and abi/errors.def into one description of the ABI, and writes bindings from it."""
