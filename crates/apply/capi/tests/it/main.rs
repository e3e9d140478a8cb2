//! The library as programs in C and C++ see it: the header, and programs that gcc compiles.

mod built;
mod header;
mod install;
mod programs;
mod sqlite;
