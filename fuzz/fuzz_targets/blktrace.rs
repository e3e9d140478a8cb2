#![no_main]

nigh_fuzz::reader!(Blktrace);
