//! The examples, as programs that run.

#[path = "../../examples/btree.rs"]
mod btree;
#[path = "../../examples/live.rs"]
mod live;
#[path = "../../examples/log_store.rs"]
mod log_store;

#[test]
fn a_b_tree_whose_pages_are_pinned() {
    btree::main().unwrap();
}

#[test]
fn a_log_store_with_its_own_device() {
    log_store::main().unwrap();
}

#[test]
fn policy_and_size_change_while_a_program_runs() {
    live::main().unwrap();
}
