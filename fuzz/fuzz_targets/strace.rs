#![no_main]

nigh_fuzz::reader!(Strace);
