//! Requests of a program as futures, for any runtime or none.
//!
//! 1. The first poll starts the request, with a callback that stores its result and wakes the future's last waker.
//! 2. A future that is dropped before is cancelled for its program only: the request goes on, and its result is dropped.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::error::HostError;
use crate::pinned::Pinned;
use crate::session::Session;
use crate::sync::lock;

type Answer<T> = Result<T, HostError>;

/// The result of a request, and who waits for it.
struct Place<T> {
    answer: Option<Answer<T>>,
    waker: Option<Waker>,
}

/// The end of a request in progress.
struct Pending<T>(Arc<Mutex<Place<T>>>);

impl<T> Future for Pending<T> {
    type Output = Answer<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer<T>> {
        let mut place = lock(&self.0);
        match place.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                place.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// The end of the request that `start` starts with this callback.
fn pending<T: Send + 'static>(start: impl FnOnce(Box<dyn FnOnce(Answer<T>) + Send>)) -> Pending<T> {
    let place = Arc::new(Mutex::new(Place { answer: None, waker: None }));
    let of_callback = place.clone();
    start(Box::new(move |answer| {
        let waker = {
            let mut place = lock(&of_callback);
            place.answer = Some(answer);
            place.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }));
    Pending(place)
}

/// Requests as futures. Each starts when it is polled first, and goes on if it is dropped then. Polling waits for nothing but the rates of
/// the disk, if it has any, and, briefly, for others' requests if a shard has as many in progress as it can.
impl Session {
    /// Reads `range`.
    pub async fn read_async(&self, range: Range<u64>) -> Result<Vec<u8>, HostError> {
        pending(|done| self.read_then(range, done)).await
    }

    /// Pins `range`, as [`pin`](Session::pin) does.
    pub async fn pin_async(&self, range: Range<u64>) -> Result<Pinned, HostError> {
        if let Some(pinned) = self.try_pin(range.clone())? {
            return Ok(pinned);
        }
        pending(|done| self.pin_then(range, done)).await
    }

    /// Writes `bytes` at `offset`, as [`write`](Session::write) does, and returns them.
    pub async fn write_async(&self, offset: u64, bytes: Vec<u8>, durable: bool) -> Result<Vec<u8>, HostError> {
        pending(|done| self.write_then(offset, bytes, durable, done)).await
    }

    /// Makes everything that was written before stable.
    pub async fn flush_async(&self) -> Result<(), HostError> {
        pending(|done| self.flush_then(done)).await.map(|_| ())
    }
}
