#![no_main]

nigh_fuzz::reader!(Blkparse);
