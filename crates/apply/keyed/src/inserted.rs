//! Results of an insertion.

use std::ops::Deref;

/// The pairs that left a cache in one call. The first takes no allocation.
#[derive(Debug)]
pub struct Evicted<K, V> {
    first: Option<(K, V)>,
    more: Vec<(K, V)>,
}

impl<K, V> Default for Evicted<K, V> {
    fn default() -> Evicted<K, V> {
        Evicted { first: None, more: Vec::new() }
    }
}

impl<K, V> Evicted<K, V> {
    /// The number of pairs.
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.len()
    }

    /// Whether nothing left.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The pairs in the order in which they left.
    pub fn iter(&self) -> impl Iterator<Item = &(K, V)> {
        self.first.iter().chain(&self.more)
    }
}

impl<K, V> Extend<(K, V)> for Evicted<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, pairs: I) {
        for pair in pairs {
            match self.first {
                None => self.first = Some(pair),
                Some(_) => self.more.push(pair),
            }
        }
    }
}

impl<K, V> IntoIterator for Evicted<K, V> {
    type Item = (K, V);
    type IntoIter = std::iter::Chain<std::option::IntoIter<(K, V)>, std::vec::IntoIter<(K, V)>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.more)
    }
}

/// The result of an insertion.
#[derive(Debug)]
pub struct Inserted<K, V> {
    /// The value that the key had before.
    pub replaced: Option<V>,
    /// The inserted pair, if it was not kept: it is heavier than the cache's limit, or the policy chose it to leave.
    pub rejected: Option<(K, V)>,
    /// Other pairs that left to make room.
    pub evicted: Evicted<K, V>,
}

impl<K, V> Inserted<K, V> {
    /// Whether the inserted value is in the cache.
    pub fn is_kept(&self) -> bool {
        self.rejected.is_none()
    }
}

/// A value that was found or made.
#[derive(Debug)]
pub enum Value<'a, V> {
    /// It is in the cache.
    Kept(&'a V),
    /// It was just made, and the cache did not keep it.
    Rejected(V),
}

impl<V> Deref for Value<'_, V> {
    type Target = V;

    fn deref(&self) -> &V {
        match self {
            Value::Kept(value) => value,
            Value::Rejected(value) => value,
        }
    }
}
