#![no_main]

nigh_fuzz::decoder!(Lz4Delta);
