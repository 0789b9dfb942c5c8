// A library that modules are linked with and that is not there when they are loaded.
extern "C" int absent() { return 0; }
