//! Progress on long work: a bar with rate and time left on a terminal, nothing in a pipe.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// A bar that counts references to be replayed.
pub(crate) fn references(length: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr_with_hz(5));
    let rate = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        let _ = write!(out, "{:.1} M/s", state.per_sec() / 1e6);
    };
    let shown = style("{prefix} {wide_bar} {human_pos}/{human_len} references, {rate}, {eta} left");
    bar.with_style(shown.with_key("rate", rate)).with_prefix("replaying")
}

/// A bar that counts requests to be served.
pub(crate) fn requests(prefix: String, length: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr_with_hz(5));
    bar.with_style(style("{prefix} {wide_bar} {human_pos}/{human_len} requests, {eta} left")).with_prefix(prefix)
}

/// A bar that counts blocks.
pub(crate) fn blocks(prefix: &'static str, length: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr_with_hz(5));
    bar.with_style(style("{prefix} {wide_bar} {human_pos}/{human_len} blocks, {eta} left")).with_prefix(prefix)
}

/// A bar that counts the jobs of a sweep.
pub(crate) fn jobs(length: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr_with_hz(5));
    bar.with_style(style("{prefix} {wide_bar} {human_pos}/{human_len} traces, {eta} left")).with_prefix("sweeping")
}

/// A bar that shows which share of a trace has been read.
pub(crate) fn share(prefix: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(1_000), ProgressDrawTarget::stderr_with_hz(5));
    bar.with_style(style("{prefix} {wide_bar} {percent} %, {eta} left")).with_prefix(prefix)
}

/// Shows on a bar of [`share`] how far reading is, where that is known; always true.
pub(crate) fn at(bar: &ProgressBar, share: Option<f64>) -> bool {
    share.into_iter().for_each(|share| bar.set_position((share * 1_000.0) as u64));
    true
}

/// A bar of time that work is given, in nanoseconds.
pub(crate) fn time(length: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr_with_hz(5));
    bar.with_style(style("{prefix} {wide_bar} {percent} %"))
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is well-formed")
}

/// Runs `work`, showing on `bar` how `count` grows meanwhile.
pub(crate) fn follow<T>(bar: ProgressBar, count: &AtomicU64, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let painter = (!bar.is_hidden()).then(|| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    bar.set_position(count.load(Ordering::Relaxed));
                    std::thread::park_timeout(Duration::from_millis(200));
                }
            })
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        if let Some(painter) = painter {
            painter.thread().unpark();
        }
        bar.finish_and_clear();
        result
    })
}
