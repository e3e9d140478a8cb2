//! Second models of the two policies whose papers leave most open, each written from its paper alone.
//!
//! A naive model that repeats the choices of the implementation confirms the code, not the reading. If a paper is
//! silent or contradicts itself, these models have a parameter. Each starts from a first reading, which was made without
//! knowledge of the implementation.

pub mod clock_pro;
pub mod dulo;
