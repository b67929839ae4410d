//! Work without the GIL, on a thread of its own, while the calling thread minds Ctrl-C and passes on what is told.

use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::Duration;

/// How long Ctrl-C may wait to be noticed.
const PATIENCE: Duration = Duration::from_millis(50);
/// As much as the first thread of a program has.
const STACK: usize = 8 << 20;

/// What a thread says to the one that waits for it.
enum Message<Event, Output> {
    Event(Event),
    Ended(Output),
}

/// How work came to its end.
pub struct Ending<Output> {
    /// What it returned; absent where it was left behind.
    pub output: Option<Output>,
    /// What stopped it: Ctrl-C, or an exception of whoever was told.
    pub interruption: Option<PyErr>,
}

/// Does the work and waits for it. An interruption raises `stop`; a patient caller then still waits, until the second.
pub fn attend<Event: Send + 'static, Output: Send + 'static>(
    py: Python,
    stop: &AtomicBool,
    patient: bool,
    work: impl FnOnce(&dyn Fn(Event)) -> Output + Send + 'static,
    mut hear: impl FnMut(Event) -> PyResult<()>,
) -> PyResult<Ending<Output>> {
    let (sender, mut receiver) = channel();
    let told: Sender<Message<Event, Output>> = sender.clone();
    let thread = Builder::new().name("kinfolk".into()).stack_size(STACK).spawn(move || {
        // Nobody listens any more only where the work was left behind.
        let output = work(&|event| drop(told.send(Message::Event(event))));
        let _ = sender.send(Message::Ended(output));
    })?;
    let mut interruption: Option<PyErr> = None;
    loop {
        let waiting = &mut receiver;
        let heard = match py.detach(move || waiting.recv_timeout(PATIENCE)) {
            Ok(Message::Ended(output)) => return Ok(Ending { output: Some(output), interruption }),
            Ok(Message::Event(event)) if interruption.is_none() => hear(event),
            Ok(Message::Event(_)) | Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => match thread.join() {
                Ok(()) => unreachable!("a thread that ends says so"),
                Err(panic) => std::panic::resume_unwind(panic),
            },
        };
        if let Err(exception) = heard.and_then(|()| py.check_signals()) {
            stop.store(true, Ordering::Relaxed);
            if interruption.replace(exception).is_some() || !patient {
                return Ok(Ending { output: None, interruption });
            }
        }
    }
}
