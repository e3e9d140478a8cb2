//! fio as the client: it replays each program as a job of its own, with a connection of its own.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use nigh_trace::{Op, Request};
use serde_json::Value;

use crate::measure;
use crate::peers::Peer;

pub(super) fn speaks_nbd() -> bool {
    let output = Command::new("fio").arg("--enghelp").output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).split_whitespace().any(|word| word == "nbd"))
}

/// How long the longest of the programs took.
pub(super) fn run(server: &Peer, folder: &Path, programs: &[Vec<Request>]) -> anyhow::Result<Duration> {
    let report = folder.join("fio.json");
    let mut fio = Command::new("fio");
    fio.arg("--output-format=json").arg(format!("--output={}", report.display()));
    for (number, requests) in programs.iter().enumerate() {
        let log = folder.join(format!("{number}.iolog"));
        std::fs::write(&log, iolog(requests)?)?;
        fio.arg(format!("--name={number}")).arg("--ioengine=nbd");
        fio.arg(format!("--uri=nbd+unix:///?socket={}", server.socket.display()));
        fio.arg(format!("--read_iolog={}", log.display()));
    }
    measure::run(&mut fio)?;
    longest(&serde_json::from_str(&std::fs::read_to_string(&report)?)?, programs)
}

/// `requests` as fio replays them, one when the one before is done.
fn iolog(requests: &[Request]) -> anyhow::Result<String> {
    let mut text = "fio version 2 iolog\ndisk add\ndisk open\n".to_owned();
    for Request { op, offset, length, .. } in requests {
        let op = match op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Trim => "trim",
            Op::Flush => "sync",
        };
        writeln!(text, "disk {op} {offset} {length}")?;
    }
    text.push_str("disk close\n");
    Ok(text)
}

/// The time of the longest job, each of which has done all that its program asks for.
fn longest(report: &Value, programs: &[Vec<Request>]) -> anyhow::Result<Duration> {
    let jobs = report["jobs"].as_array().context("fio reports no jobs")?;
    ensure!(jobs.len() == programs.len(), "{} jobs of {} programs", jobs.len(), programs.len());
    let mut longest_ms = 0;
    for (number, (job, requests)) in jobs.iter().zip(programs).enumerate() {
        ensure!(job["error"] == 0, "job {number} of fio failed: {}", job["error"]);
        for (kind, op) in [("read", Op::Read), ("write", Op::Write)] {
            let wanted = requests.iter().filter(|request| request.op == op).count() as u64;
            let done = &job[kind]["total_ios"];
            ensure!(*done == wanted, "job {number} of fio: {done} {kind}s of {wanted}");
        }
        longest_ms = longest_ms.max(job["job_runtime"].as_u64().context("fio reports no times")?);
    }
    Ok(Duration::from_millis(longest_ms))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(op: Op, offset: u64, length: u32) -> Request {
        Request { op, offset, length, ..Request::default() }
    }

    #[test]
    fn a_log_has_a_line_for_each_request() {
        let requests = [request(Op::Read, 65_536, 4096), request(Op::Write, 0, 512), request(Op::Flush, 0, 0)];
        let lines = ["disk read 65536 4096", "disk write 0 512", "disk sync 0 0"];
        let head = "fio version 2 iolog\ndisk add\ndisk open\n";
        assert_eq!(iolog(&requests).unwrap(), format!("{head}{}\ndisk close\n", lines.join("\n")));
    }

    #[test]
    fn a_job_that_did_not_do_everything_is_an_error() {
        let programs = [vec![request(Op::Read, 0, 1); 3], vec![request(Op::Write, 0, 1), request(Op::Read, 0, 1)]];
        let job = |error: i32, reads: u64, writes: u64, ms: u64| {
            let total = |count: u64| json!({ "total_ios": count });
            json!({ "error": error, "read": total(reads), "write": total(writes), "job_runtime": ms })
        };
        let of = |jobs: [Value; 2]| longest(&json!({ "jobs": jobs }), &programs);
        assert_eq!(of([job(0, 3, 0, 40), job(0, 1, 1, 90)]).unwrap(), Duration::from_millis(90));
        let said = |jobs| of(jobs).unwrap_err().to_string();
        assert_eq!(said([job(0, 3, 0, 40), job(0, 2, 0, 90)]), "job 1 of fio: 2 reads of 1");
        assert_eq!(said([job(5, 3, 0, 40), job(0, 1, 1, 90)]), "job 0 of fio failed: 5");
        assert!(longest(&json!({ "jobs": [job(0, 3, 0, 40)] }), &programs).is_err());
    }
}
