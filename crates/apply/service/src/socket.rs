//! Bytes of sockets and pipes, whatever signals come between.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags};

/// Calls until no signal comes between.
pub(crate) fn again<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

/// Reads what there is, at least a byte; 0 at the end.
pub(crate) fn receive(input: impl AsFd, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    match slices {
        [alone] => again(|| rustix::io::read(&input, &mut **alone)),
        _ => again(|| rustix::io::readv(&input, slices)),
    }
}

/// As `receive`, from a socket; `WouldBlock` if there is nothing.
pub(crate) fn receive_now(socket: impl AsFd, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    let mut ancillary = RecvAncillaryBuffer::default();
    let received = again(|| rustix::net::recvmsg(&socket, slices, &mut ancillary, RecvFlags::DONTWAIT))?;
    Ok(received.bytes)
}

/// Sends at least a byte, or returns `WouldBlock`.
pub(crate) fn send(socket: impl AsFd, slices: &[IoSlice<'_>], wait: bool) -> io::Result<usize> {
    let flags = if wait { SendFlags::NOSIGNAL } else { SendFlags::NOSIGNAL | SendFlags::DONTWAIT };
    again(|| rustix::net::sendmsg(&socket, slices, &mut SendAncillaryBuffer::default(), flags))
}
