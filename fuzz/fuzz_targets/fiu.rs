#![no_main]

nigh_fuzz::reader!(Fiu);
