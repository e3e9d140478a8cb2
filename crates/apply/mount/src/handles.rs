//! Open files and folders, by the numbers that the kernel has for them.

use std::sync::{Arc, PoisonError, RwLock};

use rustix::io::Errno;

/// Values by number.
pub(crate) struct Handles<T>(RwLock<Slots<T>>);

struct Slots<T> {
    values: Vec<Option<Arc<T>>>,
    free: Vec<u64>,
}

impl<T> Default for Handles<T> {
    fn default() -> Handles<T> {
        Handles(RwLock::new(Slots { values: Vec::new(), free: Vec::new() }))
    }
}

impl<T> Handles<T> {
    /// Keeps `value` and returns its number.
    pub(crate) fn add(&self, value: T) -> u64 {
        let mut slots = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let value = Some(Arc::new(value));
        match slots.free.pop() {
            Some(number) => {
                slots.values[number as usize] = value;
                number
            }
            None => {
                slots.values.push(value);
                slots.values.len() as u64 - 1
            }
        }
    }

    /// The value with this number.
    #[inline]
    pub(crate) fn get(&self, number: u64) -> Result<Arc<T>, Errno> {
        let slots = self.0.read().unwrap_or_else(PoisonError::into_inner);
        slots.values.get(number as usize).cloned().flatten().ok_or(Errno::BADF)
    }

    /// Drops the value, once nobody uses it.
    pub(crate) fn remove(&self, number: u64) -> Option<Arc<T>> {
        let mut slots = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let value = slots.values.get_mut(number as usize)?.take();
        slots.free.push(number);
        value
    }
}
