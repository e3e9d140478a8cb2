//! Results of tests, which their runners report in JUnit's form.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitStatus;

use anyhow::{Context, ensure};
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

/// Results of tests, of several runners.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// Tests that could not run, with the reason: those that printed `skipped: NAME: REASON`, or that pytest skipped.
    skipped: BTreeSet<String>,
    /// Runners that failed, and how.
    failures: Vec<String>,
    /// Seconds and names.
    times: Vec<(f64, String)>,
}

impl Report {
    /// Adds the results in a file.
    pub(crate) fn add(&mut self, path: &Path) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        self.parse(&text).with_context(|| path.display().to_string())
    }

    /// Notes whether a runner succeeded. Others run all the same, so that one run shows everything that fails.
    pub(crate) fn ended(&mut self, runner: &str, status: ExitStatus) {
        if !status.success() {
            self.failures.push(format!("{runner}: {status}"));
        }
    }

    /// The error that something failed.
    pub(crate) fn result(&self) -> anyhow::Result<()> {
        ensure!(self.failures.is_empty(), "{}", self.failures.join(", "));
        Ok(())
    }

    pub(crate) fn skip(&mut self, what: String) {
        self.skipped.insert(what);
    }

    fn parse(&mut self, text: &str) -> anyhow::Result<()> {
        let mut reader = Reader::from_str(text);
        let (mut suite, mut case, mut failed, mut skipped) = (String::new(), String::new(), false, false);
        loop {
            let event = reader.read_event()?;
            match &event {
                Event::Start(tag) | Event::Empty(tag) => match tag.name().as_ref() {
                    b"testsuite" => suite = attribute(tag, "name")?,
                    b"testcase" => {
                        let class = attribute(tag, "classname")?;
                        let of = if suite == "pytest" { class } else { suite.clone() };
                        case = format!("{of} {}", attribute(tag, "name")?);
                        (failed, skipped) = (false, false);
                        self.times.push((attribute(tag, "time")?.parse().unwrap_or(0.0), case.clone()));
                        if matches!(event, Event::Empty(_)) {
                            self.passed += 1;
                        }
                    }
                    b"failure" | b"error" => failed = true,
                    b"skipped" => {
                        skipped = true;
                        self.skipped.insert(format!("{case}: {}", attribute(tag, "message")?));
                    }
                    _ => {}
                },
                Event::End(tag) if tag.name().as_ref() == b"testcase" => {
                    self.failed += usize::from(failed);
                    self.passed += usize::from(!failed && !skipped);
                }
                Event::Text(text) => {
                    let text = text.decode()?;
                    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("skipped: "));
                    self.skipped.extend(lines.map(str::to_owned));
                }
                Event::Eof => return Ok(()),
                _ => {}
            }
        }
    }

    pub(crate) fn print_slowest(&self, most: usize) {
        let mut times: Vec<_> = self.times.iter().collect();
        times.sort_by(|a, b| b.0.total_cmp(&a.0));
        println!("{:>7}  slowest tests", "seconds");
        times.iter().take(most).for_each(|(time, name)| println!("{time:>7.1}  {name}"));
    }

    /// Prints the names of skipped tests, and a last line of counts.
    pub(crate) fn print(&self) {
        self.skipped.iter().for_each(|test| println!("skipped: {test}"));
        println!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped.len());
    }
}

fn attribute(tag: &BytesStart, name: &str) -> anyhow::Result<String> {
    let found = tag.try_get_attribute(name)?;
    Ok(found.map(|found| found.normalized_value(XmlVersion::Implicit1_0)).transpose()?.unwrap_or_default().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_both_runners() {
        let mut report = Report::default();
        let nextest = r#"<testsuites><testsuite name="nigh::it"><testcase name="a::b" time="1.5"/>
            <testcase name="c" time="0.1"><system-out>x
skipped: c: no &quot;fio&quot;
</system-out></testcase><testcase name="d" time="2"><failure>no</failure></testcase></testsuite></testsuites>"#;
        report.parse(nextest).unwrap();
        let pytest = r#"<testsuites><testsuite name="pytest"><testcase classname="test_a" name="b" time="0.2"/>
            <testcase classname="test_a" name="s" time="0"><skipped message="no dask"/></testcase></testsuite></testsuites>"#;
        report.parse(pytest).unwrap();
        assert_eq!((report.passed, report.failed), (3, 1));
        assert!(report.skipped.contains("test_a s: no dask"), "{:?}", report.skipped);
        assert_eq!(report.skipped.len(), 2);
        assert_eq!(report.times[2], (2.0, "nigh::it d".to_owned()));
        assert!(report.parse("<testsuites").is_err());
    }
}
