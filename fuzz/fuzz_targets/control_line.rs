#![no_main]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, OnceLock};

use libfuzzer_sys::fuzz_target;
use nigh_backend::Target;
use nigh_service::{Allocation, Answer, Command, ExportSettings, FileExtent, Service, Settings};

const BYTES: u64 = 1 << 20;
const WHOLE: FileExtent = FileExtent { file: 0, offset: 0, disk: 0, length: BYTES };

/// A server in this process, and a client of its control socket.
struct Controlled {
    settings: Settings,
    server: Service,
    client: BufReader<UnixStream>,
}

impl Controlled {
    fn start() -> Controlled {
        let export = |name| ExportSettings::new(name, Target::Memory(BYTES));
        let mut settings = Settings::new(BYTES / 4, "lru".parse().expect("a policy"), vec![export("a"), export("b")]);
        settings.host.allocate = Some(Allocation::LruSp);
        let server = Service::start(settings.clone()).expect("a server");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("control");
        server.control(&path, || Ok(())).expect("a socket");
        let client = BufReader::new(UnixStream::connect(&path).expect("it listens"));
        Controlled { settings, server, client }
    }

    /// The answer to a line: one line, and an error in one.
    fn answer(&mut self, line: &[u8]) -> Answer {
        self.client.get_mut().write_all(&[line, b"\n"].concat()).expect("it reads");
        let mut text = String::new();
        self.client.read_line(&mut text).expect("it answers");
        let answer: Answer = serde_json::from_str(&text).expect("an answer");
        assert!(answer.error.as_ref().is_none_or(|error| !error.is_empty() && !error.contains('\n')), "{text}");
        answer
    }

    fn ask(&mut self, command: &Command) -> Answer {
        self.answer(&serde_json::to_vec(command).expect("commands are plain data"))
    }

    /// Directives that were reported can be sent again.
    fn say_again(&mut self, name: &str) {
        let Some(told) = self.ask(&Command::Hints { name: name.into() }).hints else { return };
        let again = Command::Hint { name: name.into(), files: Vec::new(), directives: told.clone() };
        assert_eq!(self.ask(&again).error, None, "{told}");
        assert_eq!(self.ask(&Command::Hints { name: name.into() }).hints, Some(told));
    }

    /// As at the start.
    fn restore(&mut self) {
        self.server.reload(&self.settings).expect("these exports can be served");
        for export in &self.settings.exports {
            self.server.name_files(&export.disk.name, &[WHOLE]).expect("it has this place");
        }
    }
}

/// Whether a target is no file of this machine, and small.
fn is_harmless(target: &str) -> bool {
    target.parse::<Target>().is_ok_and(|target| matches!(target, Target::Memory(bytes) if bytes <= BYTES))
}

// Every line of the control socket is answered by a line.
fuzz_target!(|input: &[u8]| {
    static SERVER: OnceLock<Mutex<Controlled>> = OnceLock::new();
    let line = input.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let command = serde_json::from_slice::<Command>(line).ok();
    if let Some(Command::AddExport { target, .. }) = &command
        && !is_harmless(target)
    {
        return;
    }
    let mut server = SERVER.get_or_init(|| Mutex::new(Controlled::start())).lock().expect("a panic ends the process");
    let answer = server.answer(line);
    assert!(command.is_some() || answer.error.is_some(), "what is no command is refused");
    if command.is_some() {
        ["a", "b"].iter().for_each(|name| server.say_again(name));
        server.restore();
    }
});
