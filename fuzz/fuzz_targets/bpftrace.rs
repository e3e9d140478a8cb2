#![no_main]

nigh_fuzz::reader!(Bpftrace);
