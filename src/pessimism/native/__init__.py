"""What is written in C++ where torch's compiler is too slow; the torch code is the reference."""
