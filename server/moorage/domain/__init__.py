"""The vocabulary that every room shares. Pure: no I/O, no clock, no third-party package."""
