//! The library that records the calls of a program from inside it.

#![doc = include_str!("../README.md")]
#![allow(unsafe_code)]
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]

mod advice;
mod board;
mod call;
mod clock;
mod files;
mod frames;
mod hooks;
mod kernel;
mod limits;
mod patch;
mod stack;
mod start;
mod thread;
