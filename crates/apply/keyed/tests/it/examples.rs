//! The example, as a program that runs.

#[path = "../../examples/pages.rs"]
mod pages;

#[test]
fn decoded_pages_in_shards() {
    pages::main();
}
