//! Many traces against policies and sizes: jobs, and their results as Arrow tables and Parquet files.

pub mod table;
