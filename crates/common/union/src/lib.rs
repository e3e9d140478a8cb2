//! Features of other crates, which Cargo chooses anew for each set of packages that is built: every crate of the workspace has
//! this one among its dependencies for tests, so that a test of one crate uses what was compiled for all.
