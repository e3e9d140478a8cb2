//! The thread of a level on other hosts: which server has which places, and the exchange with each.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::connect::{Connector, Session};
use super::jobs::{Jobs, Part};
use super::peer::{Change, OFF, Peer};
use super::{Desk, LevelLink, ServerShare, ServerState, spread};
use crate::device::Job;

/// A server that is away for this time loses its places to the others, if there are any; before that, it may return with what it has.
const RETURN: Duration = Duration::from_secs(10);

pub(super) struct Worker {
    connector: Arc<Connector>,
    desk: Arc<Desk>,
    link: Arc<LevelLink>,
    peers: Vec<Peer>,
    jobs: Jobs,
}

impl Worker {
    /// With a session of each server, or the reason that the log gave why there is none.
    pub(super) fn new(
        connector: Arc<Connector>,
        desk: Arc<Desk>,
        link: Arc<LevelLink>,
        sessions: Vec<(Arc<ServerState>, Result<Session, String>)>,
    ) -> Worker {
        let now = Instant::now();
        let jobs = Jobs::new(desk.clone(), link.block_bytes.into());
        let mut worker = Worker { connector, desk, link, peers: Vec::new(), jobs };
        for (state, session) in sessions {
            let mut peer = Peer::new(state, now);
            match session {
                Ok(session) => _ = peer.adopt(session, worker.link.block_bytes),
                Err(reason) => peer.failed(reason, now),
            }
            peer.has_places = peer.is_live();
            worker.peers.push(peer);
        }
        worker
    }

    pub(super) fn run(mut self) {
        loop {
            let mut mail = self.desk.mail();
            let jobs = std::mem::take(&mut mail.jobs);
            let (servers, is_closing) = (mail.servers.take(), mail.is_closing);
            drop(mail);
            if is_closing {
                self.peers.iter_mut().for_each(Peer::give_back);
                return;
            }
            let now = Instant::now();
            servers.into_iter().for_each(|servers| self.change(&servers, now));
            jobs.into_iter().for_each(|job| self.take(job));
            self.connect(now);
            self.exchange(now);
            let wait = self.peers.iter().map(Peer::wait).min().unwrap_or(Duration::from_secs(1));
            self.desk.wake.wait_with(self.peers.iter().filter_map(Peer::socket), Some(wait));
        }
    }

    fn take(&mut self, job: Job) {
        let parts = self.jobs.begin(job);
        self.hand_out(parts);
    }

    fn owner(&self, extent: u64) -> Option<usize> {
        let with_places = self.peers.iter().enumerate().filter(|(_, peer)| peer.has_places);
        spread::draw(extent, with_places.map(|(at, peer)| (at, peer.ticket)))
    }

    fn hand_out(&mut self, parts: Vec<Part>) {
        let mut last = None;
        for part in parts {
            let extent = spread::extent_at(part.place * u64::from(self.link.block_bytes));
            let owner = match last {
                Some((of, owner)) if of == extent => owner,
                _ => self.owner(extent),
            };
            last = Some((extent, owner));
            match owner {
                Some(at) => self.peers[at].take(part, &mut self.jobs),
                None => self.jobs.end(part, Err(OFF)),
            }
        }
    }

    fn connect(&mut self, now: Instant) {
        for at in 0..self.peers.len() {
            let change = self.peers[at].reconnect(&self.connector, &self.desk, now);
            match change {
                Some(Change::Empty) if self.peers[at].has_places => self.tell_gone(at),
                // Without places, it has nothing to resume.
                Some(_) if !self.peers[at].has_places => self.reroute(|peers| peers[at].has_places = true),
                Some(_) | None => {}
            }
        }
        let is_another_there = self.peers.iter().any(|peer| peer.has_places && peer.is_live());
        let is_gone = |peer: &Peer| peer.has_places && peer.away.is_some_and(|since| now - since >= RETURN);
        if is_another_there && self.peers.iter().any(is_gone) {
            self.reroute(|peers| {
                for peer in peers.iter_mut().filter(|peer| is_gone(peer)) {
                    tracing::warn!(level = peer.state.address, "the other servers of the level take over its places");
                    peer.has_places = false;
                    peer.start_over();
                }
            });
        }
    }

    fn exchange(&mut self, now: Instant) {
        let level = self.connector.level().number;
        let (mut left, mut has_replies) = (Vec::new(), false);
        for peer in &mut self.peers {
            if !peer.is_live() {
                continue;
            }
            match peer.exchange(level, &mut self.jobs, &self.link, now) {
                Ok((of, replies)) => {
                    left.extend(of);
                    has_replies |= replies;
                }
                Err(error) => {
                    peer.lose(&error, &self.link, &mut self.jobs, now);
                    self.connector.disconnected(&peer.state.address);
                }
            }
        }
        if has_replies {
            let rooms = || self.peers.iter().filter(|peer| peer.is_live()).map(|peer| peer.room);
            // While one of them is empty, there is no such age.
            let oldest_us = rooms().map(|(_, oldest)| oldest).collect::<Option<Vec<u64>>>();
            let oldest_us = oldest_us.and_then(|ages| ages.into_iter().max());
            let free = rooms().fold(0, |sum: u64, (free, _)| sum.saturating_add(free));
            self.link.note(left, free, oldest_us);
        }
        self.link.is_off.store(self.peers.iter().all(|peer| !peer.is_live()), Ordering::Release);
    }

    /// The server number `at` lost what it had.
    fn tell_gone(&mut self, at: usize) {
        let own = spread::extents(self.link.bytes).filter(|&extent| self.owner(extent) == Some(at));
        self.link.note_gone(own);
    }

    /// Changes which servers have places. Places that move are empty.
    fn reroute(&mut self, change: impl FnOnce(&mut Vec<Peer>)) {
        let owners = |worker: &Worker| -> Vec<Option<Arc<ServerState>>> {
            let owner = |extent| worker.owner(extent).map(|at| worker.peers[at].state.clone());
            spread::extents(worker.link.bytes).map(owner).collect()
        };
        let before = owners(self);
        let waiting: Vec<Part> = self.peers.iter_mut().flat_map(Peer::take_back).collect();
        change(&mut self.peers);
        let after = owners(self);
        let same = |one: &Option<Arc<ServerState>>, other: &Option<Arc<ServerState>>| match (one, other) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        let mut moved = Vec::new();
        for (extent, (before, after)) in (0..).zip(before.iter().zip(&after)) {
            let Some(before) = before.as_ref().filter(|_| !same(before, after)) else { continue };
            if let Some(peer) = self.peers.iter_mut().find(|peer| Arc::ptr_eq(&peer.state, before)) {
                peer.forget(extent);
            }
            moved.push(extent);
        }
        self.link.note_gone(moved);
        self.hand_out(waiting);
    }

    /// The servers are `wanted` from now on. One whose share changed keeps its connection.
    fn change(&mut self, wanted: &[ServerShare], now: Instant) {
        let mut left = Vec::new();
        self.reroute(|peers| {
            left = std::mem::take(peers);
            for share in wanted {
                let known = left.iter().position(|peer| peer.state.address == share.address);
                let mut peer = match known {
                    Some(at) => left.swap_remove(at),
                    None => Peer::new(Arc::new(ServerState::new(share)), now),
                };
                peer.set_share(share);
                peers.push(peer);
            }
        });
        for mut peer in left {
            peer.give_back();
            peer.end(&mut self.jobs);
            self.connector.disconnected(&peer.state.address);
        }
        self.link.set_servers(self.peers.iter().map(|peer| peer.state.clone()).collect());
    }
}
