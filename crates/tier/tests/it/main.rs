//! Several levels managed as one, against twins and published figures.

mod clients;
mod figures;
mod twin;
