//! Work without the GIL, on another thread, while the calling thread handles Ctrl-C and passes on events.

use super::*;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::Duration;

/// Interval between checks for Ctrl-C.
const PATIENCE: Duration = Duration::from_millis(50);
/// The usual stack size of a main thread.
const STACK: usize = 8 << 20;

/// What a thread sends to the one that waits for it.
enum Message<Event, Output> {
    Event(Event),
    Ended(Output),
}

/// How work ended.
pub struct Ending<Output> {
    /// What it returned; absent where it was abandoned.
    pub output: Option<Output>,
    /// What interrupted it: Ctrl-C, or an exception of the event handler.
    pub interruption: Option<PyErr>,
}

/// Does the work and waits for it. An interruption sets `stop`; a patient caller keeps waiting until a second one.
pub fn attend<Event: Send + 'static, Output: Send + 'static>(
    py: Python,
    stop: &AtomicBool,
    patient: bool,
    work: impl FnOnce(&(dyn Fn(Event) + Sync)) -> Output + Send + 'static,
    mut hear: impl FnMut(Event) -> PyResult<()>,
) -> PyResult<Ending<Output>> {
    let (sender, mut receiver) = channel();
    let told: Sender<Message<Event, Output>> = sender.clone();
    let thread = Builder::new().name("kinfolk".into()).stack_size(STACK).spawn(move || {
        // The receiver is gone only where the work was abandoned.
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

/// Does the work and returns its result. Ctrl-C sets `stop` and does not wait: there is nothing to save.
pub fn compute<Output: Send + 'static>(
    py: Python,
    stop: &AtomicBool,
    work: impl FnOnce() -> Result<Output> + Send + 'static,
) -> PyResult<Output> {
    let Ending { output, interruption } = attend(py, stop, false, move |_: &(dyn Fn(()) + Sync)| work(), |()| Ok(()))?;
    match (interruption, output) {
        (Some(exception), _) => Err(exception),
        (None, Some(output)) => output.map_err(|error| raise(py, &error)),
        (None, None) => unreachable!("only what is interrupted has no end"),
    }
}
