//! Requests as futures, on an executor of a few lines.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use nigh_host::{BLOCK, DiskSettings, Host, HostError, Settings};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (mut future, mut context) = (pin!(future), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn start() -> Host {
    let disk = DiskSettings::new("disk", "delay:10ms:memory:16M".parse().unwrap());
    Host::start(Settings::new(1 << 20, "lirs".parse().unwrap(), vec![disk])).unwrap()
}

#[test]
fn futures_end_as_requests_do() {
    let host = start();
    let session = host.open("disk").unwrap();
    block_on(async {
        let bytes = session.write_async(100, vec![5; 3000], true).await.unwrap();
        assert_eq!(bytes, vec![5; 3000]);
        session.flush_async().await.unwrap();
        assert_eq!(session.read_async(100..3100).await.unwrap(), bytes);
        assert_eq!(session.pin_async(100..110).await.unwrap()[..], [5; 10]);
        assert_eq!(session.pin_async(8 << 20..(8 << 20) + 1).await.unwrap()[..], [0]);
        assert_eq!(session.read_async(0..u64::MAX).await, Err(HostError::OutOfRange));
    });
    host.remove("disk", false).unwrap();
    assert_eq!(block_on(session.read_async(0..1)), Err(HostError::Closed));
}

/// Requests that are in progress at the same time, of which every other one is dropped: the others end, nothing stays counted, and a
/// write goes on.
#[test]
fn dropped_futures_leave_nothing_behind() {
    let host = start();
    let session = host.open("disk").unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut left = Vec::new();
    for at in 0..u64::from(session.pins_most()) {
        let mut pinned = Box::pin({
            let session = session.clone();
            async move { session.pin_async(at * BLOCK..(at + 1) * BLOCK).await }
        });
        assert!(pinned.as_mut().poll(&mut context).is_pending());
        left.extend((at % 2 == 0).then_some(pinned));
    }
    let mut write = Box::pin(session.write_async(0, vec![1; 4 << 20], false));
    let _ = write.as_mut().poll(&mut context);
    drop(write);
    let pins: Vec<_> = left.into_iter().map(|pinned| block_on(pinned).unwrap()).collect();
    assert_eq!(pins.len() as u32, session.pins_most().div_ceil(2));
    drop(pins);
    session.flush().unwrap();
    // Those of the dropped futures are unpinned as soon as their blocks came.
    let mut pins = Vec::new();
    while (pins.len() as u32) < session.pins_most() {
        match session.pin((1000 + pins.len() as u64) * BLOCK..(1001 + pins.len() as u64) * BLOCK) {
            Ok(pinned) => pins.push(pinned),
            Err(error) => assert_eq!(error, HostError::TooManyPins),
        }
    }
    let mut bytes = vec![0; 4 << 20];
    session.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 1), "a write that began goes on");
    host.shut_down().unwrap();
}
