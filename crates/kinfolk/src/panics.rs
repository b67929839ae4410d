//! Panics as errors: a bug in one place must not cost the results of all the others.

use crate::error::{Error, ErrorKind, Result};
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};

thread_local! {
    /// How many calls of [`contained`] this thread is in.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Whether this thread works for others, who are handed its panics.
    static WORKS_FOR_OTHERS: Cell<bool> = const { Cell::new(false) };
}

/// The calls of [`contained`] in progress on all threads.
static CONTAINING: AtomicUsize = AtomicUsize::new(0);
/// The last panic that was kept quiet: what it said, and where. Who catches it on another thread is told the first only.
static LAST: Mutex<Option<(String, String)>> = Mutex::new(None);

/// Does some work; a panic in it, here or on the threads of a pool, is an error of kind `Internal` that says what
/// happened and where, and nothing is printed.
pub fn contained<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    install_hook();
    let _inside = Inside::enter();
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| Err(internal(&*payload)))
}

/// Marks this thread as one of a pool: its panics surface where its work was asked for.
pub(crate) fn mark_pool_thread() {
    WORKS_FOR_OTHERS.set(true);
}

/// Lasts as long as a call of [`contained`].
struct Inside;

impl Inside {
    fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        CONTAINING.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        CONTAINING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Panics that nobody contains are told as before.
fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info: &PanicHookInfo| {
            let handed_on = WORKS_FOR_OTHERS.get() && CONTAINING.load(Ordering::SeqCst) > 0;
            if DEPTH.get() == 0 && !handed_on {
                return before(info);
            }
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            let said = (message(info.payload()).to_string(), place);
            *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(said);
        }));
    });
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}

fn internal(payload: &(dyn Any + Send)) -> Error {
    let message = message(payload);
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner).take();
    let place = last.filter(|(said, _)| said == message).map(|(_, place)| format!(" ({place})"));
    Error::new(ErrorKind::Internal, format!("a bug in kinfolk: {message}{}", place.unwrap_or_default()))
        .hint("please report it, with what you ran")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_that_says_what_and_where() {
        let error = contained::<()>(|| panic!("three is not {}", 4)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        let text = error.to_string();
        assert!(text.starts_with("a bug in kinfolk: three is not 4 ("), "{text}");
        assert!(text.contains("panics.rs:"), "{text}");
        assert_eq!(contained(|| Ok(5)), Ok(5));
        assert_eq!(contained::<()>(|| Err(Error::data("no"))).unwrap_err().kind(), ErrorKind::Data);
    }

    #[test]
    fn a_panic_on_a_thread_of_a_pool_is_contained_where_the_work_was_asked_for() {
        let pool = crate::compute::threads(2).unwrap();
        let error = contained::<()>(|| {
            pool.scope(|scope| scope.spawn(|_| panic!("on another thread")));
            Ok(())
        });
        let text = error.unwrap_err().to_string();
        assert!(text.contains("on another thread") && text.contains("panics.rs:"), "{text}");
    }
}
