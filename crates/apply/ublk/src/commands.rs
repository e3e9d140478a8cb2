//! The commands of a queue, without the ring that carries them.
//!
//! 1. There is a command for each tag. It is *fetched* once, and waits in the kernel.
//! 2. It completes when there is a request of that tag: the server has it.
//! 3. The server *commits* the result, and the same command waits for the next request.
//! 4. A command that completes as aborted is gone: its device ends. A request that the server has then need not be committed.

/// The result of a command whose device ends: there is no request, and no other one will come.
const ABORTED: i32 = -19;

/// A command for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Waits for the first request of a tag.
    Fetch { tag: u16 },
    /// Ends the request of a tag, with bytes or a negative error, and waits for the next one.
    Commit { tag: u16, result: i32 },
}

/// The state of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    /// Its command waits in the kernel.
    Waiting,
    /// The server has its request.
    Here,
    /// There is no command any more.
    Gone,
}

/// Why a queue cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    #[error("the driver reports a command that was not in progress")]
    Unknown,
    #[error("the driver reports result {0} for a command")]
    Result(i32),
}

/// The commands of one queue.
#[derive(Debug)]
pub(crate) struct Commands {
    tags: Vec<Tag>,
    /// Commands in the kernel.
    waiting: usize,
}

impl Commands {
    /// The commands of a queue of this depth, and those that begin it.
    pub(crate) fn new(depth: u16) -> (Commands, impl Iterator<Item = Command>) {
        let commands = Commands { tags: vec![Tag::Waiting; depth.into()], waiting: depth.into() };
        (commands, (0..depth).map(|tag| Command::Fetch { tag }))
    }

    /// The command of `tag` completed. Returns whether there is a request; if not, there will be none of this tag.
    pub(crate) fn complete(&mut self, tag: u16, result: i32) -> Result<bool, Broken> {
        let state =
            self.tags.get_mut(usize::from(tag)).filter(|state| **state == Tag::Waiting).ok_or(Broken::Unknown)?;
        self.waiting -= 1;
        match result {
            0 => {
                *state = Tag::Here;
                Ok(true)
            }
            ABORTED => {
                *state = Tag::Gone;
                Ok(false)
            }
            result => {
                *state = Tag::Gone;
                Err(Broken::Result(result))
            }
        }
    }

    /// The request of `tag` ended with `result`.
    pub(crate) fn commit(&mut self, tag: u16, result: i32) -> Command {
        let state = &mut self.tags[usize::from(tag)];
        assert_eq!(*state, Tag::Here, "tag {tag}");
        *state = Tag::Waiting;
        self.waiting += 1;
        Command::Commit { tag, result }
    }

    /// Whether no request can come any more.
    pub(crate) fn is_over(&self) -> bool {
        self.waiting == 0 && self.tags.contains(&Tag::Gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_fetched_committed_and_gone() {
        let (mut commands, fetches) = Commands::new(2);
        assert_eq!(fetches.collect::<Vec<_>>(), [Command::Fetch { tag: 0 }, Command::Fetch { tag: 1 }]);
        assert_eq!(commands.complete(1, 0), Ok(true));
        assert_eq!(commands.commit(1, 4096), Command::Commit { tag: 1, result: 4096 });
        assert_eq!(commands.complete(1, 0), Ok(true));
        // The device ends while the server has a request.
        assert_eq!(commands.complete(0, ABORTED), Ok(false));
        assert!(commands.is_over());
        // Its commit comes back as aborted.
        commands.commit(1, -5);
        assert!(!commands.is_over());
        assert_eq!(commands.complete(1, ABORTED), Ok(false));
        assert!(commands.is_over());
    }

    #[test]
    fn all_tags_in_use_is_not_the_end() {
        let (mut commands, _) = Commands::new(1);
        assert_eq!(commands.complete(0, 0), Ok(true));
        assert!(!commands.is_over());
    }

    #[test]
    fn completions_that_cannot_be_are_errors() {
        let (mut commands, _) = Commands::new(2);
        assert_eq!(commands.complete(2, 0), Err(Broken::Unknown));
        assert_eq!(commands.complete(0, 0), Ok(true));
        assert_eq!(commands.complete(0, 0), Err(Broken::Unknown));
        // The driver wants to be given memory, which it does not with USER_COPY.
        assert_eq!(commands.complete(1, 1), Err(Broken::Result(1)));
        let (mut commands, _) = Commands::new(1);
        assert_eq!(commands.complete(0, -22), Err(Broken::Result(-22)));
        assert!(commands.is_over());
    }

    #[test]
    #[should_panic(expected = "tag 0")]
    fn only_a_request_that_is_here_is_committed() {
        let (mut commands, _) = Commands::new(1);
        commands.commit(0, 0);
    }
}
