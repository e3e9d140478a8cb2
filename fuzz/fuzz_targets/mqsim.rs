#![no_main]

nigh_fuzz::reader!(MqSim);
