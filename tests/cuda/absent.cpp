// A library that modules link, and that does not exist when they are loaded.
extern "C" int absent() { return 0; }
