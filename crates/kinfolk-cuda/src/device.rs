//! One CUDA device: what it is, its memory, programs for it, and launches.

use cudarc::driver::{result, sys};
use cudarc::nvrtc::sys as nvrtc;
use kinfolk::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A device, with the programs compiled for it.
pub(crate) struct Device {
    context: sys::CUcontext,
    stream: sys::CUstream,
    /// For what may run beside it, and the events by which both wait for each other.
    beside: sys::CUstream,
    events: [sys::CUevent; 2],
    /// Its name, and what it is able to do.
    pub(crate) name: String,
    capability: (i32, i32),
    /// Bytes that the threads of a block may share.
    pub(crate) shared: usize,
    modules: Mutex<HashMap<String, Arc<Module>>>,
    /// Seconds and launches of every kernel, where they are measured.
    measured: Mutex<Option<Measured>>,
    measures: AtomicBool,
}

/// Microseconds and launches of every kernel.
pub(crate) type Measured = BTreeMap<String, (f64, usize)>;

// SAFETY: handles of the driver may be used from any thread that has made the context current, which every user does first
// (`Device::bind`); the stream is used by one engine at a time, behind a lock.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

fn failure(what: &str, error: impl std::fmt::Debug) -> Error {
    Error::new(ErrorKind::Io, format!("device: {what} failed: {error:?}"))
}

fn missing(found: String) -> Error {
    Error::settings(format!("device: \"cuda\" wants an NVIDIA device with its driver, {found}"))
        .hint("use device = \"cpu\", or \"auto\", which takes a device where there is one")
}

impl Device {
    /// The first device, if driver and compiler are there and it is able to do what kernels want.
    pub(crate) fn open() -> Result<Arc<Self>> {
        // SAFETY: only looks whether the libraries can be loaded.
        let (driver, compiler) = unsafe { (sys::is_culib_present(), nvrtc::is_culib_present()) };
        if !driver {
            return Err(missing("found no driver (libcuda.so)".into()));
        }
        if !compiler {
            return Err(missing("found a driver, but no CUDA toolkit (libnvrtc.so)".into())
                .hint("install the CUDA toolkit, or have LD_LIBRARY_PATH name the folder of libnvrtc.so"));
        }
        result::init().map_err(|error| missing(format!("found a driver that does not start: {error:?}")))?;
        let count = result::device::get_count().map_err(|error| failure("counting devices", error))?;
        if count == 0 {
            return Err(missing("found a driver without any device".into()));
        }
        let device = result::device::get(0).map_err(|error| failure("opening the device", error))?;
        let name = result::device::get_name(device).map_err(|error| failure("asking its name", error))?;
        let attribute = |which| {
            // SAFETY: the device was just opened.
            unsafe { result::device::get_attribute(device, which) }.map_err(|error| failure("asking the device", error))
        };
        let capability = (
            attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        let shared =
            attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?.max(0) as usize;
        if capability < (8, 0) {
            let (major, minor) = capability;
            return Err(missing(format!("found {name} of compute capability {major}.{minor}, want 8.0 or newer")));
        }
        // SAFETY: the device was just opened; its context stays until the process ends.
        let context =
            unsafe { result::primary_ctx::retain(device) }.map_err(|error| failure("opening a context", error))?;
        // SAFETY: the context was just made.
        unsafe { result::ctx::set_current(context) }.map_err(|error| failure("using a context", error))?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)
            .map_err(|error| failure("opening a stream", error))?;
        let beside = result::stream::create(result::stream::StreamKind::NonBlocking)
            .map_err(|error| failure("opening a stream", error))?;
        let event = || {
            result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
                .map_err(|error| failure("making an event", error))
        };
        Ok(Arc::new(Self {
            context,
            stream,
            beside,
            events: [event()?, event()?],
            name,
            capability,
            shared,
            modules: Mutex::default(),
            measured: Mutex::default(),
            measures: AtomicBool::new(false),
        }))
    }

    /// The stream that all work goes into.
    pub(crate) fn stream(&self) -> sys::CUstream {
        self.stream
    }

    /// Makes this thread use the device.
    pub(crate) fn bind(&self) -> Result<()> {
        // SAFETY: the context is there as long as the process.
        unsafe { result::ctx::set_current(self.context) }.map_err(|error| failure("using a context", error))
    }

    /// Bytes of memory that are free.
    pub(crate) fn free_memory(&self) -> Result<usize> {
        self.bind()?;
        result::mem_get_info().map(|(free, _)| free).map_err(|error| failure("asking for memory", error))
    }

    /// Memory that holds what it was given.
    pub(crate) fn upload<T: Copy>(self: &Arc<Self>, values: &[T]) -> Result<Buffer> {
        let mut buffer = Buffer::default();
        self.fill(&mut buffer, values)?;
        Ok(buffer)
    }

    /// Makes a buffer at least so large; what was in it is lost where it grows.
    pub(crate) fn grow(self: &Arc<Self>, buffer: &mut Buffer, bytes: usize) -> Result<()> {
        if buffer.bytes >= bytes {
            return Ok(());
        }
        *buffer = Buffer::default();
        let bytes = bytes.max(256).next_multiple_of(1 << 12);
        // SAFETY: the context is current; the buffer owns what it is given.
        let address = unsafe { result::malloc_sync(bytes) }.map_err(|error| {
            let free = self.free_memory().unwrap_or(0) >> 20;
            let message = format!("device: {} MiB of memory wanted, {free} MiB are free ({error:?})", bytes >> 20);
            Error::new(ErrorKind::Io, message).hint("use device = \"cpu\"")
        })?;
        *buffer = Buffer { address, bytes, device: Some(self.clone()) };
        Ok(())
    }

    /// Puts values into a buffer, which grows where it must. They are copied before this returns.
    pub(crate) fn fill<T: Copy>(self: &Arc<Self>, buffer: &mut Buffer, values: &[T]) -> Result<()> {
        self.grow(buffer, size_of_val(values))?;
        self.write(buffer.address, values)
    }

    /// Writes values to a place in the device's memory, after all that was launched before.
    pub(crate) fn write<T: Copy>(&self, address: u64, values: &[T]) -> Result<()> {
        if values.is_empty() {
            return Ok(());
        }
        // SAFETY: the place was allocated at least so large by `grow`; memory that is not page-locked is copied out of before
        // the call returns.
        unsafe { result::memcpy_htod_async(address, values, self.stream) }.map_err(|error| failure("a copy", error))
    }

    /// Reads from the device's memory, after all that was launched before.
    pub(crate) fn read<T: Copy + Default>(&self, address: u64, count: usize) -> Result<Vec<T>> {
        let mut values = vec![T::default(); count];
        self.read_into(address, &mut values)?;
        Ok(values)
    }

    pub(crate) fn read_into<T: Copy>(&self, address: u64, values: &mut [T]) -> Result<()> {
        if values.is_empty() {
            return self.wait();
        }
        // SAFETY: the place was allocated at least so large, and the wait ends the copy before `values` is used.
        unsafe { result::memcpy_dtoh_async(values, address, self.stream) }.map_err(|error| failure("a copy", error))?;
        self.wait()
    }

    pub(crate) fn clear(&self, buffer: &Buffer, bytes: usize) -> Result<()> {
        // SAFETY: the buffer is at least so large.
        unsafe { result::memset_d8_async(buffer.address, 0, bytes.min(buffer.bytes), self.stream) }
            .map_err(|error| failure("clearing memory", error))
    }

    /// Waits for all that was launched.
    pub(crate) fn wait(&self) -> Result<()> {
        // SAFETY: the stream is there as long as the device.
        unsafe { result::stream::synchronize(self.stream) }.map_err(|error| failure("a kernel", error))
    }

    /// The program of this source, compiled once.
    pub(crate) fn compile(&self, source: &str) -> Result<Arc<Module>> {
        let modules = || self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = modules().get(source) {
            return Ok(module.clone());
        }
        self.bind()?;
        let (major, minor) = self.capability;
        let image = compile(source, &format!("sm_{major}{minor}"))?;
        // SAFETY: the image is what the compiler made, and complete.
        let module = unsafe { result::module::load_data(image.as_ptr().cast()) }
            .map_err(|error| failure("loading kernels", error))?;
        let module = Arc::new(Module { module });
        modules().insert(source.to_string(), module.clone());
        Ok(module)
    }

    /// Measures every kernel from now on, one at a time, or tells what was measured and stops.
    pub(crate) fn measure(&self, on: bool) -> Measured {
        self.measures.store(on, Ordering::Relaxed);
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *measured, on.then(Measured::new)).unwrap_or_default()
    }

    fn launch_measured<A>(&self, kernel: &Kernel, slots: usize, arguments: &A) -> Result<()> {
        let failed = |error| failure("measuring", error);
        let event = || result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).map_err(failed);
        let (begin, end) = (event()?, event()?);
        // SAFETY: both events were just made and are destroyed once, after the stream has passed them.
        let micros = unsafe {
            result::event::record(begin, self.stream).map_err(failed)?;
            self.launch_now(kernel, slots, arguments)?;
            result::event::record(end, self.stream).map_err(failed)?;
            result::event::synchronize(end).map_err(failed)?;
            let millis = result::event::elapsed(begin, end).map_err(failed)?;
            result::event::destroy(begin).map_err(failed)?;
            result::event::destroy(end).map_err(failed)?;
            f64::from(millis) * 1e3
        };
        if let Some(measured) = &mut *self.measured.lock().unwrap_or_else(PoisonError::into_inner) {
            let entry = measured.entry(kernel.name.to_string()).or_default();
            *entry = (entry.0 + micros, entry.1 + 1);
        }
        Ok(())
    }

    /// Launches a kernel that takes one struct by value.
    pub(crate) fn launch<A>(&self, kernel: &Kernel, slots: usize, arguments: &A) -> Result<()> {
        if self.measures.load(Ordering::Relaxed) {
            return self.launch_measured(kernel, slots, arguments);
        }
        self.launch_now(kernel, slots, arguments)
    }

    /// Launches a kernel beside those that follow, once all before it are done.
    pub(crate) fn launch_beside<A>(&self, kernel: &Kernel, slots: usize, arguments: &A) -> Result<()> {
        if self.measures.load(Ordering::Relaxed) {
            return self.launch_measured(kernel, slots, arguments);
        }
        self.follow(self.events[0], self.stream, self.beside)?;
        self.launch_into(self.beside, kernel, slots, arguments)
    }

    /// Has what follows wait for all that runs beside it.
    pub(crate) fn join(&self) -> Result<()> {
        self.follow(self.events[1], self.beside, self.stream)
    }

    /// Has one stream wait for what is in another by now.
    fn follow(&self, event: sys::CUevent, before: sys::CUstream, after: sys::CUstream) -> Result<()> {
        // SAFETY: streams and events are there as long as the device.
        unsafe {
            result::event::record(event, before)
                .and_then(|()| result::stream::wait_event(after, event, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT))
        }
        .map_err(|error| failure("waiting for an event", error))
    }

    fn launch_now<A>(&self, kernel: &Kernel, slots: usize, arguments: &A) -> Result<()> {
        self.launch_into(self.stream, kernel, slots, arguments)
    }

    fn launch_into<A>(&self, stream: sys::CUstream, kernel: &Kernel, slots: usize, arguments: &A) -> Result<()> {
        let [x, y] = kernel.grid;
        let mut places = [std::ptr::from_ref(arguments).cast_mut().cast::<c_void>()];
        // SAFETY: the kernel takes exactly this struct (`Args` or `Totals`, declared alike in `kernels.cu`), which the driver copies
        // before it returns; the buffers named in it are as large as the kernel's own bounds, which follow from the same numbers.
        unsafe {
            result::launch_kernel(
                kernel.function,
                (x, y, slots as u32),
                (kernel.threads, 1, 1),
                kernel.shared,
                stream,
                &mut places,
            )
        }
        .map_err(|error| failure("launching a kernel", error))
    }
}

/// Compiled kernels.
pub(crate) struct Module {
    module: sys::CUmodule,
}

// SAFETY: a handle of the driver, which may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// A kernel with its number of blocks for one slot, and its threads.
    pub(crate) fn kernel(&self, name: &str, grid: [usize; 2], threads: usize) -> Result<Kernel> {
        let text = CString::new(name).map_err(|error| failure("naming a kernel", error))?;
        // SAFETY: modules are never unloaded.
        let function =
            unsafe { result::module::get_function(self.module, text) }.map_err(|error| failure(name, error))?;
        Ok(Kernel {
            name: Arc::from(name),
            function,
            grid: grid.map(|blocks| blocks as u32),
            threads: threads as u32,
            shared: 0,
        })
    }
}

/// A kernel, and how it is launched.
#[derive(Clone)]
pub(crate) struct Kernel {
    name: Arc<str>,
    function: sys::CUfunction,
    grid: [u32; 2],
    threads: u32,
    /// Bytes that the threads of a block share, beside those the kernel declares.
    shared: u32,
}

impl Kernel {
    /// With so many bytes for the threads of a block.
    pub(crate) fn sharing(self, bytes: usize) -> Result<Self> {
        let most = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: modules are never unloaded.
        unsafe { result::function::set_function_attribute(self.function, most, bytes as i32) }
            .map_err(|error| failure(&format!("sharing {bytes} bytes"), error))?;
        Ok(Self { shared: bytes as u32, ..self })
    }

    /// With so many blocks along the second axis.
    pub(crate) fn wide(self, blocks: usize) -> Self {
        Self { grid: [self.grid[0], blocks as u32], ..self }
    }
}

// SAFETY: a handle of the driver, which may be used from any thread.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

/// Memory of a device.
#[derive(Default)]
pub(crate) struct Buffer {
    pub(crate) address: u64,
    bytes: usize,
    device: Option<Arc<Device>>,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(device) = self.device.take() else { return };
        // What cannot be given back is the driver's.
        let _ = device.bind();
        // SAFETY: the buffer alone knows this address, and the driver waits for whoever uses it.
        let _ = unsafe { result::free_sync(self.address) };
    }
}

/// Machine code for such a device.
pub(crate) fn compile(source: &str, architecture: &str) -> Result<Vec<u8>> {
    let text = CString::new(source).map_err(|error| failure("kernels' text", error))?;
    let options = [format!("--gpu-architecture={architecture}"), "--std=c++17".into()];
    let options: Vec<CString> = options.into_iter().filter_map(|option| CString::new(option).ok()).collect();
    let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
    let mut program = std::ptr::null_mut();
    // SAFETY: all that is pointed to lives until the program is destroyed, and sizes are those the compiler tells.
    unsafe {
        let name = c"kinfolk.cu".as_ptr();
        let made = nvrtc::nvrtcCreateProgram(&mut program, text.as_ptr(), name, 0, std::ptr::null(), std::ptr::null());
        if made != nvrtc::nvrtcResult::NVRTC_SUCCESS {
            return Err(failure("starting the compiler", made));
        }
        let compiled = nvrtc::nvrtcCompileProgram(program, options.len() as i32, options.as_ptr());
        if compiled != nvrtc::nvrtcResult::NVRTC_SUCCESS {
            let mut size = 0;
            nvrtc::nvrtcGetProgramLogSize(program, &mut size);
            let mut log = vec![0u8; size + 1];
            nvrtc::nvrtcGetProgramLog(program, log.as_mut_ptr().cast());
            nvrtc::nvrtcDestroyProgram(&mut program);
            let log =
                CStr::from_bytes_until_nul(&log).map(|log| log.to_string_lossy().into_owned()).unwrap_or_default();
            return Err(failure("compiling kernels", log));
        }
        let mut size = 0;
        nvrtc::nvrtcGetCUBINSize(program, &mut size);
        let mut image = vec![0u8; size];
        let got = nvrtc::nvrtcGetCUBIN(program, image.as_mut_ptr().cast());
        nvrtc::nvrtcDestroyProgram(&mut program);
        if got != nvrtc::nvrtcResult::NVRTC_SUCCESS {
            return Err(failure("taking the compiler's result", got));
        }
        Ok(image)
    }
}
