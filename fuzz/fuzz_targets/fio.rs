#![no_main]

nigh_fuzz::reader!(Fio);
