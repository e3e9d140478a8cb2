#![no_main]

nigh_fuzz::decoder!(Zstd);
