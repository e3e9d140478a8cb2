//! One connection to an NBD server: bytes of flights out, bytes of replies in. Nothing here waits.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use nigh_nbd::client::{Replies, ReplyError};
use nigh_nbd::{Decoded, Framing, Header, RequestHeader, wire};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};

use super::exchange::Exchange;

/// Bytes received at a time.
const INPUT: usize = 128 << 10;
/// Flights that one system call sends, and slices of memory that it takes.
const BATCH: usize = 16;
const SLICES_MAX: usize = 512;

/// Why a connection is over.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lost {
    #[error("the server closed the connection")]
    Closed,
    #[error(transparent)]
    System(#[from] Errno),
    #[error("the server breaks the protocol: {0}")]
    Reply(#[from] ReplyError),
}

/// A connection.
pub(super) struct Link {
    fd: OwnedFd,
    framing: Framing,
    replies: Replies,
    input: Vec<u8>,
    /// Beginning of the bytes of `input` that are not decoded yet.
    begin: usize,
    end: usize,
    /// Flights that are not sent, or not as a whole.
    out: VecDeque<usize>,
    /// Bytes of the first of them that are sent.
    sent: usize,
    /// The rest of a flight that nobody waits for: it goes first.
    rest: Vec<u8>,
    /// The socket takes no more for now.
    is_full: bool,
}

impl Link {
    pub(super) fn new(fd: OwnedFd, framing: Framing) -> Link {
        Link {
            fd,
            framing,
            replies: Replies::new(framing),
            input: vec![0; INPUT],
            begin: 0,
            end: 0,
            out: VecDeque::new(),
            sent: 0,
            rest: Vec::new(),
            is_full: false,
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether the socket is to be watched for room.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether nothing is left to be sent.
    pub(super) fn is_sent(&self) -> bool {
        self.out.is_empty() && self.rest.is_empty()
    }

    /// Has a flight sent.
    pub(super) fn push(&mut self, flight: usize) {
        self.out.push_back(flight);
    }

    /// Forgets the flights that jobs and queries wait for, as far as no byte of them is sent. The rest of one that is half
    /// sent stays.
    pub(super) fn retract(&mut self, exchange: &mut Exchange) {
        if self.sent > 0
            && let Some(first) = self.out.pop_front()
        {
            let header = exchange.header(first, self.framing);
            let mut slices = vec![IoSlice::new(header.get(self.sent..).unwrap_or_default())];
            exchange.payload(first, self.sent.saturating_sub(header.len()), &mut slices);
            self.rest.extend(slices.iter().flat_map(|slice| slice.iter()));
            self.sent = 0;
        }
        self.out.retain(|flight| {
            let stays = !exchange.is_wanted(*flight);
            if !stays {
                exchange.retract(*flight);
            }
            stays
        });
    }

    /// Sends what the socket takes.
    pub(super) fn send(&mut self, exchange: &Exchange) -> Result<(), Lost> {
        self.is_full = false;
        while !self.is_sent() {
            let headers: Vec<Header> =
                self.out.iter().take(BATCH).map(|flight| exchange.header(*flight, self.framing)).collect();
            let mut slices = Vec::with_capacity(1 + 2 * headers.len());
            if !self.rest.is_empty() {
                slices.push(IoSlice::new(&self.rest));
            }
            for (at, (flight, header)) in self.out.iter().zip(&headers).enumerate() {
                let skip = if at == 0 { self.sent } else { 0 };
                if let Some(header) = header.get(skip..) {
                    slices.push(IoSlice::new(header));
                }
                exchange.payload(*flight, skip.saturating_sub(header.len()), &mut slices);
                if slices.len() >= SLICES_MAX {
                    slices.truncate(SLICES_MAX);
                    break;
                }
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.fd, &slices, &mut SendAncillaryBuffer::default(), flags) {
                Ok(bytes) => self.advance(bytes, exchange),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.is_full = true;
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn advance(&mut self, bytes: usize, exchange: &Exchange) {
        let of_rest = bytes.min(self.rest.len());
        self.rest.drain(..of_rest);
        self.sent += bytes - of_rest;
        while let Some(first) = self.out.front() {
            let whole = self.framing.request_header() + exchange.payload_bytes(*first);
            if self.sent < whole {
                return;
            }
            self.sent -= whole;
            self.out.pop_front();
        }
    }

    /// Takes what came, at most as much as one system call gives. Returns whether anything came.
    pub(super) fn receive(&mut self, number: usize, exchange: &mut Exchange, now: Instant) -> Result<bool, Lost> {
        let room = &mut self.input[self.end..];
        match recv(&self.fd, room, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Err(Lost::Closed),
            Ok((_, bytes)) => self.end += bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        loop {
            let input = &self.input[self.begin..self.end];
            match self.replies.step(input, |cookie| exchange.asked(cookie, number))? {
                Decoded::Whole(part, taken) => {
                    if let Some(part) = part {
                        exchange.take(part, now).map_err(ReplyError::from)?;
                    }
                    self.begin += taken;
                }
                Decoded::Need(more) => {
                    self.make_room(more);
                    return Ok(true);
                }
            }
        }
    }

    /// Moves what was not understood yet to the front. `more` bytes are needed to go on with it.
    fn make_room(&mut self, more: usize) {
        self.input.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        // Data of reads is taken piece by piece: it needs no room as a whole.
        if self.end > 0 && self.input.len() < self.end + more {
            self.input.resize(self.end + more, 0);
        }
    }

    /// Says goodbye, if nothing is half sent.
    pub(super) fn disconnect(&mut self) {
        if self.is_sent() {
            let header = RequestHeader { flags: 0, command: wire::command::DISC, cookie: 0, offset: 0, length: 0 }
                .encode(self.framing);
            let header = header.as_deref().unwrap_or_default();
            let slices = [IoSlice::new(header)];
            // The end of the connection means the same.
            let _ = sendmsg(
                &self.fd,
                &slices,
                &mut SendAncillaryBuffer::default(),
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            );
        }
    }
}
