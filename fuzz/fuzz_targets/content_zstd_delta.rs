#![no_main]

nigh_fuzz::decoder!(ZstdDelta);
