//! The connections to the control socket: how many there are, and which of them wait for an export.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use nigh_host::front::lock;

use crate::command::Command;

/// The most connections whose command does not wait for an export. Of more, the one that has been idle longest is closed.
const CLIENTS_MAX: usize = 16;
/// The most commands that wait for one export, or for all of them.
pub(crate) const WAITING_MAX: usize = 4;

/// State of a connection.
#[derive(PartialEq, Eq)]
enum State {
    /// Nothing, since this number of changes.
    Idle(u64),
    /// A command that waits for no export.
    Busy,
    /// A command that may wait for the device or the clients of this export, or of any.
    Waiting(Option<String>),
    /// It takes the place of this server.
    Succeeds,
}

struct Controller {
    stream: Arc<UnixStream>,
    state: State,
}

/// The connection on which a server is that takes the place of this one, and how it is noted that it serves.
pub(crate) struct Link {
    pub(crate) stream: Arc<UnixStream>,
    pub(crate) serves: Sender<()>,
}

#[derive(Default)]
struct List {
    controllers: Vec<Controller>,
    /// Counts the changes of states.
    changes: u64,
    /// Servers that are to take the place of this one.
    successors: Vec<Link>,
}

/// All connections to a control socket.
#[derive(Default)]
pub struct Controllers(Mutex<List>);

/// As many commands as may wait for an export do so already.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Crowded {
    #[error("{WAITING_MAX} commands for export {0} wait for its device already: see nigh ctl status")]
    Export(String),
    #[error("{WAITING_MAX} commands for all exports wait for a device already: see nigh ctl status")]
    All,
}

impl Controllers {
    /// A connection begins. Returns false if there is no place for it.
    pub(crate) fn enter(&self, stream: Arc<UnixStream>) -> bool {
        let mut list = lock(&self.0);
        let waits = |controller: &&Controller| matches!(controller.state, State::Waiting(_));
        if list.controllers.iter().filter(|controller| !waits(controller)).count() >= CLIENTS_MAX {
            let idle = |(at, controller): (usize, &Controller)| match controller.state {
                State::Idle(since) => Some((since, at)),
                State::Busy | State::Waiting(_) | State::Succeeds => None,
            };
            let Some((_, at)) = list.controllers.iter().enumerate().filter_map(idle).min() else { return false };
            // Its client is gone already, if this fails.
            let _ = list.controllers.swap_remove(at).stream.shutdown(Shutdown::Both);
        }
        list.changes += 1;
        let state = State::Idle(list.changes);
        list.controllers.push(Controller { stream, state });
        true
    }

    /// A connection ends.
    pub(crate) fn leave(&self, stream: &Arc<UnixStream>) {
        let mut list = lock(&self.0);
        list.controllers.retain(|other| !Arc::ptr_eq(&other.stream, stream));
        list.successors.retain(|link| !Arc::ptr_eq(&link.stream, stream));
    }

    /// A connection is that of a server that is to take the place of this one.
    pub(crate) fn add_successor(&self, link: Link) {
        lock(&self.0).successors.push(link);
    }

    /// The server at this connection has taken the place of this one.
    pub(crate) fn succeeded(&self, stream: &Arc<UnixStream>) {
        let list = lock(&self.0);
        let links = list.successors.iter().filter(|link| Arc::ptr_eq(&link.stream, stream));
        // Nobody waits for it any more, if this fails.
        links.for_each(|link| _ = link.serves.send(()));
    }

    /// A command of a connection begins.
    pub(crate) fn begin(&self, stream: &Arc<UnixStream>, command: &Command) -> Result<(), Crowded> {
        let mut list = lock(&self.0);
        let state = match command {
            Command::RemoveExport { name, .. } | Command::AddExport { name, .. } | Command::SetExport { name, .. } => {
                State::Waiting(Some(name.clone()))
            }
            Command::Drain { name } | Command::Freeze { name, .. } => State::Waiting(Some(name.clone())),
            Command::Flush { name } => State::Waiting(name.clone()),
            Command::Reload {} | Command::Set { .. } => State::Waiting(None),
            Command::HandOver {} => State::Succeeds,
            _ => State::Busy,
        };
        if let State::Waiting(of) = &state
            && list.controllers.iter().filter(|controller| controller.state == state).count() >= WAITING_MAX
        {
            return Err(of.clone().map_or(Crowded::All, Crowded::Export));
        }
        list.set(stream, state);
        Ok(())
    }

    /// A command of a connection is over.
    pub(crate) fn end(&self, stream: &Arc<UnixStream>) {
        let mut list = lock(&self.0);
        list.changes += 1;
        let state = State::Idle(list.changes);
        list.set(stream, state);
    }

    /// Closes all connections, except those of successors.
    pub fn shut_down(&self) {
        let list = lock(&self.0);
        for controller in list.controllers.iter().filter(|controller| controller.state != State::Succeeds) {
            // Its client is gone already, if this fails.
            let _ = controller.stream.shutdown(Shutdown::Both);
        }
    }
}

impl List {
    fn set(&mut self, stream: &Arc<UnixStream>, state: State) {
        if let Some(of) = self.controllers.iter_mut().find(|other| Arc::ptr_eq(&other.stream, stream)) {
            of.state = state;
        }
    }
}
