//! All files whose contents may be cached. They outlive the kernel's interest in them, so that a file is still cached when it is used again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use nigh_host::front::lock;

use crate::attributes::Id;
use crate::file::File;

/// Most files that are remembered beyond those that the kernel knows. A file takes about 400 bytes.
const MOST: usize = 1 << 18;

#[derive(Default)]
pub(crate) struct Files(Mutex<State>);

#[derive(Default)]
struct State {
    by_id: HashMap<Id, Arc<File>>,
    /// Files that the kernel forgot, the one that it forgot first at the front. It may know them again.
    idle: VecDeque<Id>,
}

impl Files {
    /// The file `id`.
    pub(crate) fn get(&self, id: Id) -> Arc<File> {
        lock(&self.0).by_id.entry(id).or_insert_with(|| Arc::new(File::new())).clone()
    }

    /// The file `id`, if its contents may be cached.
    pub(crate) fn known(&self, id: Id) -> Option<Arc<File>> {
        lock(&self.0).by_id.get(&id).cloned()
    }

    /// The file `id` no longer exists, or cannot be distinguished from others any more. Returns it unless somebody has just found it again.
    pub(crate) fn remove(&self, id: Id) -> Option<Arc<File>> {
        lock(&self.0).remove_unused(id)
    }

    /// The kernel forgot the file `id`. Returns one that is not remembered any more.
    pub(crate) fn rest(&self, id: Id) -> Option<Arc<File>> {
        let mut state = lock(&self.0);
        if state.by_id.contains_key(&id) {
            state.idle.push_back(id);
        }
        if state.idle.len() <= MOST {
            return None;
        }
        let oldest = state.idle.pop_front()?;
        state.remove_unused(oldest)
    }
}

impl State {
    fn remove_unused(&mut self, id: Id) -> Option<Arc<File>> {
        // Nobody else can find it while the table is locked.
        let is_unused = self.by_id.get(&id).is_some_and(|file| Arc::strong_count(file) == 1);
        if is_unused { self.by_id.remove(&id) } else { None }
    }
}
