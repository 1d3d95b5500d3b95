import { StoreDamagedError, StoreInUseError, StoreOutdatedError, StoreUnavailableError } from '../store/store.ts';
import { PeerUnreachableError } from './peers.ts';

const TELLING = [StoreUnavailableError, StoreDamagedError, StoreInUseError, StoreOutdatedError, PeerUnreachableError];

/**
 * Whether an error's text may be told to others than its cause: it is made of addresses, paths and what a store says, which is
 * given values apart from its statements. Texts of V8 and of libraries quote input, a payload for example.
 */
export const isTelling = (error: Error): boolean => TELLING.some((type) => error instanceof type);
