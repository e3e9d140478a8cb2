//! The page of a simulation, and its charts as files. The charts are drawn by the page's own code, which needs a browser.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use nigh_output::Destination;
use nigh_report::Report;
use serde::Deserialize;

use crate::output;
use crate::results::counted;

/// Browsers that can run without a window and print a page's elements.
const BROWSERS: [&str; 5] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];
/// Longer than a browser takes for any page.
const PATIENCE: Duration = Duration::from_secs(120);
/// Surround the charts in the page.
const CHARTS: [&str; 2] = [r#"id="charts">"#, "</script>"];

/// The places of the page and of its charts.
pub(crate) struct Pages {
    html: Option<Destination>,
    charts: Option<Charts>,
}

/// A folder for charts.
struct Charts {
    folder: PathBuf,
    replaces: bool,
    browser: PathBuf,
}

/// A chart, as the page leaves it.
#[derive(Deserialize)]
struct Chart {
    name: String,
    svg: String,
}

impl Pages {
    /// Checks that the page `html` and the charts in the folder `svg` can be written: see [`Destination::new`] for the page. Charts need
    /// a folder that does not exist or is empty, unless `force`, and a browser.
    pub(crate) fn new(html: Option<&Path>, svg: Option<&Path>, force: bool, read: &[&Path]) -> anyhow::Result<Pages> {
        Ok(Pages {
            html: html.map(|to| Destination::new(to, force, read)).transpose()?,
            charts: svg.map(|folder| Charts::new(folder, force)).transpose()?,
        })
    }

    /// A page without files for its charts.
    pub(crate) fn only(html: Destination) -> Pages {
        Pages { html: Some(html), charts: None }
    }

    /// Whether there is a page to make.
    pub(crate) fn is_any(&self) -> bool {
        self.html.is_some() || self.charts.is_some()
    }

    /// Prints `text`, then writes what was asked for: what cannot be written costs no table. With `reports`, last lines name it.
    pub(crate) fn write(&self, text: &[u8], reports: bool, page: impl FnOnce() -> Report) -> anyhow::Result<()> {
        if !self.is_any() {
            return output::print(text);
        }
        let page = page();
        let html = self.html.as_ref().map(|to| (to, |out: &mut dyn Write| page.write_html(out)));
        let printed = output::print_and_write(text, html, reports);
        if let Some(charts) = &self.charts {
            let drawn = charts.draw(&page)?;
            if reports && printed.is_ok() {
                let line = format!("wrote {} to {}\n", counted(drawn as u64, "chart"), charts.folder.display());
                output::print(line.as_bytes())?;
            }
        }
        printed
    }
}

impl Charts {
    fn new(folder: &Path, replaces: bool) -> anyhow::Result<Charts> {
        let at = || format!("--svg {}", folder.display());
        match fs::read_dir(folder) {
            Ok(mut files) => ensure!(
                replaces || files.next().is_none(),
                "{}: the folder is not empty; --force replaces charts of the same names",
                at()
            ),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
                ensure!(parent.is_none_or(Path::is_dir), "{}: there is no folder to put it into", at());
            }
            Err(error) => return Err(error).with_context(at),
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut programs = std::env::split_paths(&path).flat_map(|folder| BROWSERS.map(|name| folder.join(name)));
        let browser = programs.find(|program| program.is_file()).with_context(|| {
            format!(
                "{}: charts are drawn by Chromium or Chrome, and none is installed ({}); a page (--html) has a button SVG below each chart",
                at(),
                BROWSERS.join(", ")
            )
        })?;
        Ok(Charts { folder: folder.to_owned(), replaces, browser })
    }

    /// Writes the charts of `page`, and returns their number.
    fn draw(&self, page: &Report) -> anyhow::Result<usize> {
        let own = tempfile::tempdir().context("a folder for the browser")?;
        let html = own.path().join("page.html");
        page.write_html(fs::File::create(&html)?).with_context(|| html.display().to_string())?;
        let dom = self.open(own.path(), &html)?;
        let [before, after] = CHARTS;
        let json = dom.split_once(before).and_then(|(_, rest)| Some(rest.split_once(after)?.0));
        let json = json.with_context(|| format!("{} did not draw the charts", self.browser.display()))?;
        let charts: Vec<Chart> = serde_json::from_str(json).context("the charts of the page")?;
        if !self.folder.is_dir() {
            fs::create_dir(&self.folder).with_context(|| self.folder.display().to_string())?;
        }
        for (at, Chart { name, svg }) in charts.iter().enumerate() {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            ensure!(
                !name.is_empty() && !name.starts_with('.') && name.chars().all(is_plain),
                "a chart has the name {name:?}"
            );
            // Names of policies or traces can become equal.
            let same = charts[..at].iter().filter(|other| other.name == *name).count();
            let name = if same > 0 { format!("{name}-{}.svg", same + 1) } else { format!("{name}.svg") };
            let to = Destination::new(&self.folder.join(name), self.replaces, &[])?;
            output::write(&to, |out| out.write_all(svg.as_bytes()))?;
        }
        Ok(charts.len())
    }

    /// The elements of the page at `html` once its charts are drawn.
    fn open(&self, own: &Path, html: &Path) -> anyhow::Result<String> {
        let named = || self.browser.display().to_string();
        let [stdout, stderr] = ["stdout", "stderr"].map(|name| own.join(name));
        let mut command = Command::new(&self.browser);
        command.args([
            "--headless",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-sync",
        ]);
        command.args([
            "--disable-component-update",
            "--disable-dev-shm-usage",
            "--window-size=1400,1000",
            "--dump-dom",
        ]);
        command.args(["--force-device-scale-factor=1", "--blink-settings=preferredColorScheme=1"]);
        // Chromium has no sandbox for root. The page is nigh's own, and its policy forbids it the network.
        if rustix::process::geteuid().is_root() {
            command.arg("--no-sandbox");
        }
        command.arg(format!("--user-data-dir={}", own.join("profile").display()));
        command.arg(format!("file://{}#svg", html.display()));
        command.stdin(Stdio::null()).stdout(fs::File::create(&stdout)?).stderr(fs::File::create(&stderr)?);
        let mut child = command.spawn().with_context(named)?;
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().with_context(named)? {
                break status;
            }
            if begun.elapsed() > PATIENCE {
                child.kill().and_then(|()| child.wait()).with_context(named)?;
                bail!("{}: it did not end within {} s", named(), PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        if !status.success() {
            let said = String::from_utf8_lossy(&fs::read(&stderr)?).into_owned();
            bail!("{}: {status}: {}", named(), said.lines().last().unwrap_or_default());
        }
        fs::read_to_string(&stdout).with_context(named)
    }
}
