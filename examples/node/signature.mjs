// Checks the signatures of requests of the engine, as defined by Standard Webhooks.
//
//     import { verify } from './signature.mjs'
//     verify(request.headers, body, ['whsec_…']) // throws unless a key has signed the request
//
// A key begins with whsec_, or with whpk_ if it is a public key of Ed25519. The file needs no
// packages. To replace a key, give it the old and the new one.
import { createHmac, createPublicKey, timingSafeEqual, verify as verifySignature } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { pathToFileURL } from 'node:url'

const tolerance = 300 // seconds between webhook-timestamp and the clock of this machine
const maxSignatures = 10 // signatures of a request that are checked
const ed25519 = Buffer.from('302a300506032b6570032100', 'hex') // begins a public key in DER

// accepts returns a function that reports whether a key has made a signature of a content.
function accepts(key, content) {
  if (key.startsWith('whpk_')) {
    const raw = Buffer.from(key.slice(5), 'base64')
    if (raw.length !== 32) throw new Error('a key must be whpk_ and a public key of Ed25519 in base64')
    const publicKey = createPublicKey({ key: Buffer.concat([ed25519, raw]), format: 'der', type: 'spki' })
    return (text) => text.startsWith('v1a,') && verifySignature(null, content, publicKey, Buffer.from(text.slice(4), 'base64'))
  }
  const secret = Buffer.from(key.replace(/^whsec_/, ''), 'base64')
  if (!key.startsWith('whsec_') || secret.length < 24) {
    throw new Error('a key must be whsec_ and 24 bytes or more in base64')
  }
  const mine = Buffer.from('v1,' + createHmac('sha256', secret).update(content).digest('base64'))
  return (text) => {
    const theirs = Buffer.from(text)
    return theirs.length === mine.length && timingSafeEqual(theirs, mine)
  }
}

// verify throws an error unless one of the keys has signed the request. headers is that of
// node:http, and body a Buffer.
export function verify(headers, body, keys, now = Date.now() / 1000) {
  const names = ['webhook-id', 'webhook-timestamp', 'webhook-signature']
  const [id, timestamp, signatures] = names.map((name) => headers[name] ?? '')
  if (!id || !timestamp || !signatures) {
    throw new Error(`the request is not signed: it needs the headers ${names.join(', ')}`)
  }
  // With a dot, the ID could contain the timestamp of another request.
  if (id.includes('.')) throw new Error('webhook-id must not contain a dot')
  if (!/^[0-9]{1,12}$/.test(timestamp)) throw new Error('webhook-timestamp must be a number of seconds')
  if (Math.abs(now - Number(timestamp)) > tolerance) {
    throw new Error('webhook-timestamp differs too much from the clock of this machine')
  }
  if (!Array.isArray(keys)) throw new Error('the keys must be an array')
  const content = Buffer.concat([Buffer.from(`${id}.${timestamp}.`), body])
  const texts = signatures.split(' ').slice(0, maxSignatures)
  for (const key of keys) {
    if (texts.some(accepts(key, content))) return
  }
  throw new Error('no signature of the request is of a known key')
}

// node signature.mjs KEY... <request: headers, an empty line, the body
if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const request = readFileSync(0)
  const end = request.indexOf('\n\n')
  const lines = request.subarray(0, end).toString().split('\n').map((line) => line.split(': '))
  const headers = Object.fromEntries(lines.map(([name, value]) => [name.toLowerCase(), value]))
  try {
    verify(headers, request.subarray(end + 2), process.argv.slice(2))
  } catch (error) {
    console.error(error.message)
    process.exitCode = 1
  }
}
