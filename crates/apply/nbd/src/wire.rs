//! Numbers of the protocol, named as in its document without the prefix `NBD_`.

/// The TCP port registered for NBD.
pub const PORT: u16 = 10809;
/// First eight bytes a server sends, "NBDMAGIC".
pub const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second eight bytes a newstyle server sends, and the magic of every option: "IHAVEOPT".
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Magic of the reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Magic of a compact request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Magic of an extended request.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// Magic of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Magic of a structured reply chunk.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// Magic of an extended reply chunk.
pub const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Longest string (export name, description, query, error message), in bytes.
pub const STRING_MAX: usize = 4096;
/// Most data accepted with an option or with the reply to one, in bytes. A limit of this implementation.
pub const OPTION_MAX: u32 = 64 << 10;
/// Most queries accepted in one LIST_META_CONTEXT or SET_META_CONTEXT. A limit of this implementation.
pub const QUERIES_MAX: u32 = 64;
/// Most extents sent in one block status chunk, and most accepted by the client. A limit of this implementation; the
/// protocol advises at most 2^20.
pub const EXTENTS_MAX: usize = 64 << 10;
/// Zeroes that follow the reply to EXPORT_NAME unless both sides agreed to omit them.
pub const EXPORT_NAME_ZEROES: usize = 124;

/// Flags of the greeting (16 bits) and of the client's answer (32 bits), which have the same values.
pub mod handshake_flag {
    /// Options other than EXPORT_NAME are understood, and answered.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// The reply to EXPORT_NAME ends without 124 zeroes.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Options a client sends.
pub mod option {
    /// Choose an export and begin transmission; has no error reply.
    pub const EXPORT_NAME: u32 = 1;
    /// End the session.
    pub const ABORT: u32 = 2;
    /// List the exports.
    pub const LIST: u32 = 3;
    /// Upgrade the connection to TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and begin transmission.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Select the metadata contexts that BLOCK_STATUS reports.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Use extended requests and replies.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Types of reply to an option.
pub mod option_reply {
    /// Done, or the end of a list.
    pub const ACK: u32 = 1;
    /// One export of a list.
    pub const SERVER: u32 = 2;
    /// One piece of information on an export.
    pub const INFO: u32 = 3;
    /// One metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// The bit that all errors share.
    pub const ERROR: u32 = 1 << 31;
    /// The option is unknown.
    pub const ERR_UNSUP: u32 = ERROR + 1;
    /// The option is forbidden here.
    pub const ERR_POLICY: u32 = ERROR + 2;
    /// The option's data is malformed, or the option makes no sense now.
    pub const ERR_INVALID: u32 = ERROR + 3;
    /// The option is not supported on this platform.
    pub const ERR_PLATFORM: u32 = ERROR + 4;
    /// TLS must be started first.
    pub const ERR_TLS_REQD: u32 = ERROR + 5;
    /// There is no such export.
    pub const ERR_UNKNOWN: u32 = ERROR + 6;
    /// The server is shutting down.
    pub const ERR_SHUTDOWN: u32 = ERROR + 7;
    /// The client must ask for the block sizes.
    pub const ERR_BLOCK_SIZE_REQD: u32 = ERROR + 8;
    /// The request or its reply is too large.
    pub const ERR_TOO_BIG: u32 = ERROR + 9;
    /// Extended headers must be agreed first, or forbid this option.
    pub const ERR_EXT_HEADER_REQD: u32 = ERROR + 10;
}

/// Kinds of information on an export.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// Canonical name.
    pub const NAME: u16 = 1;
    /// Description.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum, preferred and maximum block size.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags: what an export is and understands.
pub mod export_flag {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH is understood.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The command flag FUA is understood.
    pub const SEND_FUA: u16 = 1 << 3;
    /// The medium seeks.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// TRIM is understood.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES is understood.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The command flag DF is understood.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers the writes of all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// CACHE is understood.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// The command flag FAST_ZERO is understood.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Commands of the transmission phase.
pub mod command {
    /// Read.
    pub const READ: u16 = 0;
    /// Write; its payload follows the header.
    pub const WRITE: u16 = 1;
    /// End the session; has no reply.
    pub const DISC: u16 = 2;
    /// Make all replied writes durable.
    pub const FLUSH: u16 = 3;
    /// Discard.
    pub const TRIM: u16 = 4;
    /// Prefetch.
    pub const CACHE: u16 = 5;
    /// Write zeroes, without payload.
    pub const WRITE_ZEROES: u16 = 6;
    /// Report the extents of the selected metadata contexts.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of a command.
pub mod command_flag {
    /// Reply after what was written is durable.
    pub const FUA: u16 = 1 << 0;
    /// WRITE_ZEROES: leave no hole.
    pub const NO_HOLE: u16 = 1 << 1;
    /// READ: reply in one chunk.
    pub const DF: u16 = 1 << 2;
    /// BLOCK_STATUS: one extent per context.
    pub const REQ_ONE: u16 = 1 << 3;
    /// WRITE_ZEROES: fail with ENOTSUP rather than be as slow as a write.
    pub const FAST_ZERO: u16 = 1 << 4;
    /// Extended requests: a payload of the header's length follows.
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Flags of a reply chunk.
pub mod chunk_flag {
    /// The last chunk of its reply.
    pub const DONE: u16 = 1 << 0;
}

/// Types of reply chunk.
pub mod chunk {
    /// Nothing; only as the last chunk.
    pub const NONE: u16 = 0;
    /// Data at an offset.
    pub const OFFSET_DATA: u16 = 1;
    /// Zeroes at an offset.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents of a metadata context, in 32 bits.
    pub const BLOCK_STATUS: u16 = 5;
    /// Extents of a metadata context, in 64 bits.
    pub const BLOCK_STATUS_EXT: u16 = 6;
    /// The bit that all errors share.
    pub const ERROR_BIT: u16 = 1 << 15;
    /// An error.
    pub const ERROR: u16 = ERROR_BIT + 1;
    /// An error at an offset.
    pub const ERROR_OFFSET: u16 = ERROR_BIT + 2;
}
