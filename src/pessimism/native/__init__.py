"""What is written in C++ where torch's compiler leaves time on the table; the torch code stays the reference."""
