//! Values by small numbers that are used again.

/// The values.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> usize {
        let at = self.free.pop().unwrap_or(self.places.len());
        match self.places.get_mut(at) {
            Some(place) => *place = Some(value),
            None => self.places.push(Some(value)),
        }
        at
    }

    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.places.get(at)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.places.get_mut(at)?.as_mut()
    }

    pub(crate) fn remove(&mut self, at: usize) -> Option<T> {
        let value = self.places.get_mut(at)?.take()?;
        self.free.push(at);
        Some(value)
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// All values, in the order of their numbers.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }

    /// The numbers that are in use, in order.
    pub(crate) fn keys(&self) -> Vec<usize> {
        let used = |(at, place): (usize, &Option<T>)| place.as_ref().map(|_| at);
        self.places.iter().enumerate().filter_map(used).collect()
    }

    pub(crate) fn clear(&mut self) {
        self.places.clear();
        self.free.clear();
    }
}
