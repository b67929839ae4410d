//! Kinfolk's engine for CUDA devices: all clients of an order are computed with at once.
//!
//! It is a [`Backend`] for models whose layers are told as data (`Model::architecture`), in single precision. Kernels are
//! compiled for the model and the device when a run begins; driver and compiler are looked for only then, so that the
//! same program runs on machines without a device.

mod device;
mod engine;
mod gram;
mod meeting;
mod program;
mod roster;
mod rows;
#[cfg(test)]
mod tests;

use device::Device;
use engine::Engine;
use kinfolk::compute::{Backend, Cpu, Roster, Threads};
use kinfolk::{Error, Experiment, Result};
use meeting::{Meeting, Shared};
use roster::CudaRoster;
use rows::Rows;
use std::sync::{Arc, Mutex, PoisonError};

/// A CUDA device as a backend.
pub struct Cuda {
    device: Arc<Device>,
    tf32: bool,
    /// What was told already.
    told: Mutex<Vec<String>>,
    tell: fn(&str),
}

impl Cuda {
    /// The first device of this machine; an error says what was found instead. Where `tf32` is set, convolutions keep of every
    /// factor only what TF32 keeps. `tell` gets what people should know.
    pub fn open(tf32: bool, tell: fn(&str)) -> Result<Self> {
        Ok(Self { device: Device::open()?, tf32, told: Mutex::default(), tell })
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.device.name
    }

    /// Measures every kernel from now on, one after the other; or stops, and returns each one's microseconds and launches.
    #[doc(hidden)]
    pub fn measure(&self, on: bool) -> Vec<(String, f64, usize)> {
        self.device.measure(on).into_iter().map(|(name, (micros, count))| (name, micros, count)).collect()
    }

    fn say(&self, text: String) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if !told.contains(&text) {
            (self.tell)(&text);
            told.push(text);
        }
    }
}

impl Backend for Cuda {
    fn admit(&self, clients: Arc<Threads>) -> Result<Box<dyn Roster>> {
        let Some(architecture) = clients.model().architecture().filter(program::suits) else {
            self.say(
                "this model is computed on the CPU: the device takes dense and convolutional networks in f32, without normalisation, \
                 dropout or augmentation"
                    .into(),
            );
            return Cpu.admit(clients);
        };
        let rows = Rows::new(&self.device, clients.clients())?;
        let engine = Engine::new(self.device.clone(), architecture, self.tf32, rows);
        let shared = Arc::new(Shared::new(engine));
        clients.help_with(Meeting::new(shared.clone()));
        Ok(Box::new(CudaRoster::new(clients, shared, self.device.clone())))
    }
}

/// The backend that is asked for: here, else in the experiment, else by KINFOLK_DEVICE, else the CPU.
pub fn chosen(
    device: Option<&str>,
    precision: Option<&str>,
    experiment: Option<&Experiment>,
    tell: fn(&str),
) -> Result<Arc<dyn Backend>> {
    let top = experiment.map(|experiment| &experiment.top);
    let environment = || std::env::var("KINFOLK_DEVICE").ok().filter(|device| !device.is_empty());
    let of_file = || top.and_then(|top| top.device).map(|device| device.to_string());
    let device = device.map(str::to_string).or_else(of_file).or_else(environment);
    let of_file = || top.and_then(|top| top.device_precision).map(|precision| precision.to_string());
    let precision = precision.map(str::to_string).or_else(of_file);
    backend(device.as_deref().unwrap_or("cpu"), precision.as_deref().unwrap_or("f32"), tell)
}

/// The backend of this name: `cpu`, `cuda`, or `auto`, which takes a device where there is one. `precision` is `f32` or `tf32`.
pub fn backend(device: &str, precision: &str, tell: fn(&str)) -> Result<Arc<dyn Backend>> {
    let tf32 = match precision {
        "f32" => false,
        "tf32" => true,
        other => return Err(Error::settings(format!("precision: got {other:?}, want \"f32\" or \"tf32\""))),
    };
    match device {
        "cpu" => Ok(Arc::new(Cpu)),
        "cuda" => Ok(Arc::new(Cuda::open(tf32, tell)?)),
        "auto" => match Cuda::open(tf32, tell) {
            Ok(cuda) => {
                tell(&format!("computing on {}", cuda.name()));
                Ok(Arc::new(cuda))
            }
            Err(error) => {
                let text = error.to_string();
                let found = text.lines().next().and_then(|line| line.split("driver, ").nth(1)).unwrap_or("none");
                tell(&format!("computing on the CPU: {found}"));
                Ok(Arc::new(Cpu))
            }
        },
        other => Err(Error::settings(format!("device: got {other:?}, want \"cpu\", \"cuda\" or \"auto\""))),
    }
}
