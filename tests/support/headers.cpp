// Nothing but a source for the headers that all tests share, see CMakeLists.txt.
