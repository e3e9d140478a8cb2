//! An S3 server of this process, whose answers fail, come late or not at all when a test wants that.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpResponse};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::RwLock;
use tokio_rustls::TlsAcceptor;

const KEY: &str = "user";
pub(crate) const SECRET: &str = "not-to-be-told";

/// Faults, in this many of a hundred requests.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    /// Answered with 500, without any effect.
    pub(crate) failing: AtomicU64,
    /// The connection is closed: half of them before the request takes effect, half after.
    pub(crate) closing: AtomicU64,
    /// Answered late.
    pub(crate) late: AtomicU64,
    /// How late, in milliseconds.
    pub(crate) delay_ms: AtomicU64,
    /// Troubles so far.
    pub(crate) met: AtomicU64,
    /// Requests so far.
    pub(crate) requests: AtomicU64,
    /// Open connections, and requests that may still take effect.
    open: AtomicU64,
    random: Mutex<fastrand::Rng>,
}

/// The server, with one bucket named `bucket`. It ends when dropped.
pub(crate) struct Bucket {
    pub(crate) trouble: Arc<Trouble>,
    endpoint: String,
    folder: tempfile::TempDir,
    /// Its threads.
    _runtime: Runtime,
}

struct Server {
    service: S3Service,
    trouble: Arc<Trouble>,
    /// The library checks the condition of a put, and then puts: exclusively, so that no other put comes between.
    conditional: RwLock<()>,
}

/// The connection is closed without an answer.
#[derive(Debug)]
struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("closed on purpose")
    }
}

impl std::error::Error for Closed {}

impl Trouble {
    fn happens(&self, percent: &AtomicU64) -> bool {
        let happens = self.random.lock().unwrap().u64(0..100) < percent.load(Ordering::Relaxed);
        self.met.fetch_add(u64::from(happens), Ordering::Relaxed);
        happens
    }

    pub(crate) fn set(&self, failing: u64, closing: u64, late: u64, delay: Duration) {
        self.failing.store(failing, Ordering::Relaxed);
        self.closing.store(closing, Ordering::Relaxed);
        self.late.store(late, Ordering::Relaxed);
        self.delay_ms.store(delay.as_millis() as u64, Ordering::Relaxed);
    }
}

fn error(status: StatusCode, code: &str) -> HttpResponse {
    let mut response = Response::new(Body::from(format!("<Error><Code>{code}</Code></Error>")));
    *response.status_mut() = status;
    response
}

/// Counts while it is there.
struct Open(Arc<Trouble>);

impl Open {
    fn new(trouble: &Arc<Trouble>) -> Open {
        trouble.open.fetch_add(1, Ordering::SeqCst);
        Open(trouble.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Server {
    async fn answer(self: Arc<Server>, request: Request<Incoming>) -> Result<HttpResponse, Closed> {
        let trouble = &self.trouble;
        trouble.requests.fetch_add(1, Ordering::Relaxed);
        let delay = if trouble.happens(&trouble.late) { trouble.delay_ms.load(Ordering::Relaxed) } else { 0 };
        if trouble.happens(&trouble.failing) {
            return Ok(error(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"));
        }
        // The library has no bucket that it could miss.
        if !request.uri().path().starts_with("/bucket") {
            return Ok(error(StatusCode::NOT_FOUND, "NoSuchBucket"));
        }
        let closes = trouble.happens(&trouble.closing);
        if closes && trouble.random.lock().unwrap().bool() {
            return Err(Closed);
        }
        let has_condition = ["if-match", "if-none-match"].iter().any(|name| request.headers().contains_key(*name));
        let (server, open) = (self.clone(), Open::new(trouble));
        // To its end, also if the client is gone: a late request takes effect, and the library would leave objects half replaced.
        let response = tokio::spawn(async move {
            let _open = open;
            tokio::time::sleep(Duration::from_millis(delay)).await;
            let request = request.map(Body::from);
            if has_condition {
                let _alone = server.conditional.write().await;
                server.service.call(request).await
            } else {
                let _together = server.conditional.read().await;
                server.service.call(request).await
            }
        });
        match response.await {
            Ok(Ok(response)) if !closes => Ok(response),
            _ => Err(Closed),
        }
    }
}

impl Bucket {
    pub(crate) fn start(seed: u64) -> Bucket {
        Bucket::start_with(seed, None)
    }

    /// As `start`, encrypted with `tls`.
    pub(crate) fn start_with(seed: u64, tls: Option<Arc<rustls::ServerConfig>>) -> Bucket {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("bucket")).unwrap();
        let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(folder.path()).unwrap());
        builder.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let trouble = Arc::new(Trouble { random: fastrand::Rng::with_seed(seed).into(), ..Trouble::default() });
        let conditional = RwLock::new(());
        let server = Arc::new(Server { service: builder.build(), trouble: trouble.clone(), conditional });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let endpoint = match tls {
            Some(_) => format!("https://localhost:{}", address.port()),
            None => format!("http://{address}"),
        };
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let server = server.clone();
                let open = Open::new(&server.trouble);
                let tls = tls.clone();
                tokio::spawn(async move {
                    let _open = open;
                    let answer = service_fn(move |request| {
                        let server = server.clone();
                        server.answer(request)
                    });
                    // The client sees what happened to its connection.
                    let server = Builder::new(TokioExecutor::new());
                    match tls.map(TlsAcceptor::from) {
                        None => _ = server.serve_connection(TokioIo::new(socket), answer).await,
                        Some(tls) => {
                            if let Ok(socket) = tls.accept(socket).await {
                                let _ = server.serve_connection(TokioIo::new(socket), answer).await;
                            }
                        }
                    }
                });
            }
            Ok::<(), Infallible>(())
        });
        Bucket { trouble, endpoint, folder, _runtime: runtime }
    }

    /// Environment that `nigh` needs to use it.
    pub(crate) fn environment(&self, command: &mut Command) {
        for (name, value) in [
            ("AWS_ACCESS_KEY_ID", KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ENDPOINT_URL", &self.endpoint),
        ] {
            command.env(name, value);
        }
    }

    /// Waits until its clients are gone and their requests have taken effect.
    pub(crate) fn settle(&self) {
        let begin = Instant::now();
        let mut quiet = 0;
        while quiet < 3 {
            assert!(begin.elapsed() < Duration::from_secs(20), "requests go on without clients");
            std::thread::sleep(Duration::from_millis(3));
            quiet = if self.trouble.open.load(Ordering::SeqCst) == 0 { quiet + 1 } else { 0 };
        }
    }

    /// The objects, as files.
    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().join("bucket")
    }

    /// The names of the objects with parts of the one disk that was ever made under this prefix.
    pub(crate) fn parts(&self, prefix: &str) -> Vec<String> {
        let folder = self.folder().join(prefix).join("parts");
        match names(&folder).as_slice() {
            [] => Vec::new(),
            [disk] => names(&folder.join(disk)),
            disks => panic!("several disks: {disks:?}"),
        }
    }
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    names
}
